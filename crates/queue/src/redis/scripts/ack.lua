-- KEYS: queue. ARGV: shard, message, consumer, account, job, shards, shards of the account, whether the job has
-- a deadline. Returns whether the consumer had the message.
local queue, shard, id, account, job = KEYS[1], ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local stream = stream_of(queue, shard)
if pending(stream, id) ~= ARGV[3] then
  return 0
end
local known = redis.call('HGET', 'meta:jobs:' .. queue, account .. '/' .. job)
local place = shard .. '|' .. id
local is_again = known == place .. '|again'
local fields = is_again and fields_of(stream, id)
redis.call('XACK', stream, GROUP, id)
redis.call('XDEL', stream, id)
-- The message is held, so it is not among those that were put back. Only deadlines make it garbage.
if ARGV[8] == '1' then
  forget_deadline(queue, shard, id, account, job)
end
if is_again or known == place then
  forget(queue, account, job)
end
if fields then
  add(queue, ARGV[6], ARGV[7], account, job, fields)
end
return 1
