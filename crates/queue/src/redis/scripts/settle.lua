-- Moves the message of a job that was ended at its deadline to the garbage, unless it is claimed.
-- KEYS: queue. ARGV: shard, message, account, job.
local queue, shard, id = KEYS[1], ARGV[1], ARGV[2]
local member = member_of(queue, shard, id, ARGV[3], ARGV[4])
redis.call('ZREM', 'meta:deadlines', member)
local owner = pending(stream_of(queue, shard), id)
if not owner or owner == RETURNED then
  redis.call('ZADD', 'meta:garbage', string.format('%.0f', now_ms()), member)
end
return 1
