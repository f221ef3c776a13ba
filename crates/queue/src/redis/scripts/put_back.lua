-- KEYS: queue. ARGV: shard, message, consumer, account, job, change of the number of deliveries.
local queue, shard, id = KEYS[1], ARGV[1], ARGV[2]
local owner, deliveries = pending(stream_of(queue, shard), id)
if owner ~= ARGV[3] then
  return 0
end
give_back(queue, shard, id, math.max(deliveries + tonumber(ARGV[6]), 0))
-- It waits again, so a push while it was claimed has nothing left to do.
local field_name, place = ARGV[4] .. '/' .. ARGV[5], shard .. '|' .. id
if redis.call('HGET', 'meta:jobs:' .. queue, field_name) == place .. '|again' then
  redis.call('HSET', 'meta:jobs:' .. queue, field_name, place)
end
return 1
