-- Forgets the shards of a queue above the configured number once they are empty. KEYS: queue. ARGV: shards.
local queue, shards = KEYS[1], tonumber(ARGV[1])
local all = shards_of(queue, shards)
for shard = shards, all - 1 do
  if redis.call('XLEN', stream_of(queue, shard)) > 0 then
    return 0
  end
end
for shard = shards, all - 1 do
  redis.call('DEL', stream_of(queue, shard))
end
if all > shards then
  redis.call('HSET', 'meta:queues', queue, shards)
end
return all - shards
