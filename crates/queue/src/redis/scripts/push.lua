-- KEYS: queue. ARGV: shards, shards of the account, account, job, own consumer, whether this process holds
-- the job, fields of the message. Returns the shard, the message, and whether it was added.
local queue, account, job = KEYS[1], ARGV[3], ARGV[4]
local known = redis.call('HGET', 'meta:jobs:' .. queue, account .. '/' .. job)
if known then
  local shard, id = string.match(known, '^(%d+)|([%d%-]+)')
  local stream = stream_of(queue, shard)
  if fields_of(stream, id) then
    local owner, deliveries = pending(stream, id)
    if owner and owner ~= RETURNED then
      if owner == ARGV[5] and ARGV[6] == '0' then
        -- An earlier process with this name took it.
        give_back(queue, shard, id, deliveries)
      else
        redis.call('HSET', 'meta:jobs:' .. queue, account .. '/' .. job, shard .. '|' .. id .. '|again')
      end
    end
    return { tonumber(shard), id, 0 }
  end
  -- The message was deleted by other means.
  clean_up(queue, shard, id, account, job)
end
local fields = {}
for i = 7, #ARGV do
  fields[#fields + 1] = ARGV[i]
end
local shard, id = add(queue, ARGV[1], ARGV[2], account, job, fields)
return { shard, id, 1 }
