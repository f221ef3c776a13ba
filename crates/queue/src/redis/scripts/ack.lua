-- KEYS: queue. ARGV: shard, message, consumer, account, job, shards, shards of the account. Returns whether
-- the consumer had the message.
local queue, shard, id, account, job = KEYS[1], ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local stream = stream_of(queue, shard)
if pending(stream, id) ~= ARGV[3] then
  return 0
end
local known = redis.call('HGET', 'meta:jobs:' .. queue, account .. '/' .. job)
local fields = known == shard .. '|' .. id .. '|again' and fields_of(stream, id)
delete(queue, shard, id, account, job)
if fields then
  add(queue, ARGV[6], ARGV[7], account, job, fields)
end
return 1
