-- KEYS: queue. ARGV: shards. Returns how many messages wait and how many are claimed.
local queue, waiting, claimed = KEYS[1], 0, 0
for shard = 0, shards_of(queue, ARGV[1]) - 1 do
  local stream = stream_of(queue, shard)
  local delivered = group_of(stream)
  waiting = waiting + math.max(redis.call('XLEN', stream) - delivered, 0)
  claimed = claimed + delivered
end
local returned = redis.call('ZCARD', 'meta:returned:' .. queue)
return { waiting + returned, math.max(claimed - returned, 0) }
