-- Removes the message of a job unless it is claimed. KEYS: queue. ARGV: account, job.
local queue, account, job = KEYS[1], ARGV[1], ARGV[2]
local known = redis.call('HGET', 'meta:jobs:' .. queue, account .. '/' .. job)
if not known then
  return 0
end
local shard, id = string.match(known, '^(%d+)|([%d%-]+)')
local owner = pending(stream_of(queue, shard), id)
if owner and owner ~= RETURNED then
  return 0
end
delete(queue, shard, id, account, job)
return 1
