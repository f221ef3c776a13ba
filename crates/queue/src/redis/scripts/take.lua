-- KEYS: queue. ARGV: shards, consumer, first shard, most messages. Returns the number of shards, and the shard, id,
-- fields and number of deliveries of each message.
local queue, consumer, first, limit = KEYS[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local shards = shards_of(queue, ARGV[1])
local reply = { shards }

local function is_full()
  return #reply > limit
end

-- Deletes a message whose job has ended; returns whether it has.
local function is_garbage(shard, id, fields)
  local account, job = field(fields, 'account'), field(fields, 'id')
  -- Only a deadline makes a message garbage.
  if not account or not job or not field(fields, 'deadline') then
    return false
  end
  if not redis.call('ZSCORE', 'meta:garbage', member_of(queue, shard, id, account, job)) then
    return false
  end
  delete(queue, shard, id, account, job)
  return true
end

while not is_full() do
  local place = redis.call('ZPOPMIN', 'meta:returned:' .. queue)[1]
  if not place then
    break
  end
  local shard, id = string.match(place, '^(%d+)|(.*)$')
  local stream = stream_of(queue, shard)
  local owner, deliveries = pending(stream, id)
  if owner == RETURNED then
    local fields = fields_of(stream, id)
    if not fields then
      redis.call('XACK', stream, GROUP, id)
    elseif not is_garbage(shard, id, fields) then
      redis.call('XCLAIM', stream, GROUP, consumer, 0, id, 'RETRYCOUNT', deliveries + 1, 'JUSTID')
      reply[#reply + 1] = { tonumber(shard), id, fields, deliveries + 1 }
    end
  end
end

-- Reads a message of a shard, and returns whether one waited there. Creates the stream and its group if needed.
-- Another error is returned too.
local function read(shard)
  local stream = stream_of(queue, shard)
  while true do
    local found = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', 1, 'STREAMS', stream, '>')
    if found and found.err then
      if not string.find(found.err, 'NOGROUP') then
        return false, found
      end
      ensure(stream)
    elseif not found or #found == 0 then
      return false
    else
      local id, fields = found[1][2][1][1], found[1][2][1][2]
      if not is_garbage(shard, id, fields) then
        reply[#reply + 1] = { shard, id, fields, 1 }
        return true
      end
    end
  end
end

-- Most shards are empty, which their length shows at a fraction of the cost of a read.
local empty, others = {}, {}
for offset = 0, shards - 1 do
  if is_full() then
    return reply
  end
  local shard = (first + offset) % shards
  if redis.call('XLEN', stream_of(queue, shard)) == 0 then
    empty[#empty + 1] = shard
  else
    local found, failure = read(shard)
    if found then
      others[#others + 1] = shard
    elseif failure and #reply == 1 then
      return failure
    end
  end
end
-- One message of each shard in turn.
while #others > 0 and not is_full() do
  local left = {}
  for _, shard in ipairs(others) do
    if not is_full() and read(shard) then
      left[#left + 1] = shard
    end
  end
  others = left
end
if #reply > 1 then
  return reply
end
-- The caller blocks on all shards next, so all must exist.
for _, shard in ipairs(empty) do
  local found, failure = read(shard)
  if failure then
    return failure
  elseif found then
    return reply
  end
end
return reply
