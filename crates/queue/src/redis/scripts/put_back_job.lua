-- Lets the message of a job wait again, whoever holds it. KEYS: queue. ARGV: account, job. Returns 0 if
-- there is no message, 1 if it waits already, 2 if it was claimed.
local queue, field_name = KEYS[1], ARGV[1] .. '/' .. ARGV[2]
local known = redis.call('HGET', 'meta:jobs:' .. queue, field_name)
if not known then
  return 0
end
local shard, id = string.match(known, '^(%d+)|([%d%-]+)')
local stream = stream_of(queue, shard)
if not fields_of(stream, id) then
  return 0
end
local owner, deliveries = pending(stream, id)
if owner and owner ~= RETURNED then
  give_back(queue, shard, id, deliveries)
  redis.call('HSET', 'meta:jobs:' .. queue, field_name, shard .. '|' .. id)
  return 2
end
return 1
