-- Removes the consumers of a queue that have no message and did nothing for long; then the queue itself, if
-- it has no consumer and no message. KEYS: queue. ARGV: shards, age in milliseconds. Returns their number.
local queue, age, count = KEYS[1], tonumber(ARGV[2]), 0
local shards, is_unused = shards_of(queue, ARGV[1]), true
for shard = 0, shards - 1 do
  local stream = stream_of(queue, shard)
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, GROUP)
  if not consumers.err then
    for _, consumer in ipairs(consumers) do
      if field(consumer, 'pending') == 0 and field(consumer, 'idle') >= age then
        redis.call('XGROUP', 'DELCONSUMER', stream, GROUP, field(consumer, 'name'))
        count = count + 1
      else
        is_unused = false
      end
    end
  end
  is_unused = is_unused and redis.call('XLEN', stream) == 0
end
if is_unused and count > 0 then
  for shard = 0, shards - 1 do
    redis.call('DEL', stream_of(queue, shard))
  end
  redis.call('DEL', 'meta:jobs:' .. queue, 'meta:accounts:' .. queue, 'meta:returned:' .. queue)
  redis.call('HDEL', 'meta:queues', queue)
end
return count
