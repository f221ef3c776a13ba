-- KEYS: queue. ARGV: shards, consumer, first shard. Returns the number of shards and, if there is a message,
-- its shard, id, fields and number of deliveries.
local queue, consumer, first = KEYS[1], ARGV[2], tonumber(ARGV[3])
local shards = shards_of(queue, ARGV[1])

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

while true do
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
      return { shards, tonumber(shard), id, fields, deliveries + 1 }
    end
  end
end

-- Reads a message of a shard, if one waits there. Creates the stream and its group if needed.
local function read(shard)
  local stream = stream_of(queue, shard)
  while true do
    local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', 1, 'STREAMS', stream, '>')
    if reply and reply.err then
      if not string.find(reply.err, 'NOGROUP') then
        return reply
      end
      ensure(stream)
    elseif not reply or #reply == 0 then
      return nil
    else
      local id, fields = reply[1][2][1][1], reply[1][2][1][2]
      if not is_garbage(shard, id, fields) then
        return { shards, shard, id, fields, 1 }
      end
    end
  end
end

-- Most shards are empty, which their length shows at a fraction of the cost of a read.
local empty = {}
for offset = 0, shards - 1 do
  local shard = (first + offset) % shards
  if redis.call('XLEN', stream_of(queue, shard)) == 0 then
    empty[#empty + 1] = shard
  else
    local found = read(shard)
    if found then
      return found
    end
  end
end
-- The caller blocks on all shards next, so all must exist.
for _, shard in ipairs(empty) do
  local found = read(shard)
  if found then
    return found
  end
end
return { shards }
