-- Functions of all scripts. Keys are derived from the name of the queue, so the scripts need one server.
--
-- <queue>:s<n>             the stream of a shard, with the group `director`
-- meta:queues              hash: queue -> number of shards that may hold messages
-- meta:jobs:<queue>        hash: account/job -> shard|message, or shard|message|again: pushed while claimed
-- meta:accounts:<queue>    hash: account -> shard:number of its messages
-- meta:returned:<queue>    sorted set: shard|message of messages that were put back
-- meta:deadlines           sorted set: stream|message|account|job by deadline in milliseconds
-- meta:garbage             sorted set: the same, settled and not collected yet
-- meta:dead                stream of dead letters
local GROUP = 'director'
-- Holds the messages that were put back: they wait, although they were delivered.
local RETURNED = 'returned'

local function stream_of(queue, shard)
  return queue .. ':s' .. shard
end

local function member_of(queue, shard, id, account, job)
  return stream_of(queue, shard) .. '|' .. id .. '|' .. account .. '|' .. job
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Creates a stream with its group, unless they exist.
local function ensure(stream)
  redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
end

-- The consumer and the number of deliveries of a message; nil if it was never delivered.
local function pending(stream, id)
  local found = redis.pcall('XPENDING', stream, GROUP, id, id, 1)
  if found.err or #found == 0 then
    return nil, 0
  end
  return found[1][2], found[1][4]
end

-- How many messages of a stream are delivered and not acknowledged, and the last one that was delivered.
local function group_of(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if not groups.err then
    for _, group in ipairs(groups) do
      local values = {}
      for i = 1, #group, 2 do
        values[group[i]] = group[i + 1]
      end
      if values['name'] == GROUP then
        return values['pending'], values['last-delivered-id']
      end
    end
  end
  return 0, '0-0'
end

local function fields_of(stream, id)
  local found = redis.call('XRANGE', stream, id, id)
  return found[1] and found[1][2]
end

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      return fields[i + 1]
    end
  end
end

local function shards_of(queue, configured)
  local recorded = redis.call('HGET', 'meta:queues', queue)
  return math.max(tonumber(configured), tonumber(recorded or 0))
end

local function account_state(queue, account)
  local state = redis.call('HGET', 'meta:accounts:' .. queue, account)
  if not state then
    return nil, 0
  end
  local shard, count = string.match(state, '^(%d+):(%d+)$')
  return tonumber(shard), tonumber(count)
end

local function forget(queue, account, job)
  if redis.call('HDEL', 'meta:jobs:' .. queue, account .. '/' .. job) == 0 then
    return
  end
  local at, count = account_state(queue, account)
  if count > 1 then
    redis.call('HSET', 'meta:accounts:' .. queue, account, at .. ':' .. (count - 1))
  else
    redis.call('HDEL', 'meta:accounts:' .. queue, account)
  end
end

local function forget_deadline(queue, shard, id, account, job)
  local member = member_of(queue, shard, id, account, job)
  redis.call('ZREM', 'meta:deadlines', member)
  redis.call('ZREM', 'meta:garbage', member)
end

-- Forgets what is known of a message that was deleted.
local function clean_up(queue, shard, id, account, job)
  local place = shard .. '|' .. id
  redis.call('ZREM', 'meta:returned:' .. queue, place)
  if account and job then
    forget_deadline(queue, shard, id, account, job)
    local known = redis.call('HGET', 'meta:jobs:' .. queue, account .. '/' .. job)
    if known and (known == place or known == place .. '|again') then
      forget(queue, account, job)
    end
  end
end

local function delete(queue, shard, id, account, job)
  local stream = stream_of(queue, shard)
  redis.call('XACK', stream, GROUP, id)
  redis.call('XDEL', stream, id)
  clean_up(queue, shard, id, account, job)
end

-- Lets a delivered message wait again, at its position.
local function give_back(queue, shard, id, deliveries)
  local pushed_at = string.match(id, '^%d+')
  -- First, because a server without memory refuses it and accepts the other.
  redis.call('ZADD', 'meta:returned:' .. queue, pushed_at, shard .. '|' .. id)
  redis.call('XCLAIM', stream_of(queue, shard), GROUP, RETURNED, 0, id, 'RETRYCOUNT', deliveries, 'JUSTID')
end

-- The shard of the next message of an account: the one that has its other messages, otherwise the emptiest
-- of its shards. `at` and `count` are what is known of the account.
local function choose_shard(queue, at, count, subset)
  if at and count > 0 then
    return at
  end
  local best, least
  for shard in string.gmatch(subset, '%d+') do
    local length = redis.call('XLEN', stream_of(queue, shard))
    if not least or length < least then
      best, least = tonumber(shard), length
    end
  end
  return best
end

-- Adds a message; returns its shard and id.
local function add(queue, shards, subset, account, job, fields)
  local at, count = account_state(queue, account)
  local shard = choose_shard(queue, at, count, subset)
  local stream = stream_of(queue, shard)
  if redis.call('EXISTS', stream) == 0 then
    ensure(stream)
  end
  local id = redis.call('XADD', stream, '*', unpack(fields))
  redis.call('HSET', 'meta:jobs:' .. queue, account .. '/' .. job, shard .. '|' .. id)
  redis.call('HSET', 'meta:accounts:' .. queue, account, shard .. ':' .. (count + 1))
  local recorded = tonumber(redis.call('HGET', 'meta:queues', queue) or -1)
  if recorded < tonumber(shards) then
    redis.call('HSET', 'meta:queues', queue, shards)
  end
  local deadline = field(fields, 'deadline')
  if deadline then
    redis.call('ZADD', 'meta:deadlines', deadline, member_of(queue, shard, id, account, job))
  end
  return shard, id
end
