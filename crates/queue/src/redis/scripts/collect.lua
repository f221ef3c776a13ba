-- Deletes messages of the garbage. ARGV: limit, age in milliseconds of deadlines that are forgotten.
-- Returns how many were looked at and how many were deleted.
local members = redis.call('ZRANGE', 'meta:garbage', 0, tonumber(ARGV[1]) - 1)
local count = 0
for _, member in ipairs(members) do
  local queue, shard, id, account, job = string.match(member, '^(.*):s(%d+)|([%d%-]+)|([^|]*)|(.*)$')
  redis.call('ZREM', 'meta:garbage', member)
  if queue then
    local owner = pending(stream_of(queue, shard), id)
    -- A consumer that has it acknowledges it.
    if not owner or owner == RETURNED then
      delete(queue, shard, id, account, job)
      count = count + 1
    end
  end
end
redis.call('ZREMRANGEBYSCORE', 'meta:deadlines', '-inf', string.format('%.0f', now_ms() - tonumber(ARGV[2])))
return { #members, count }
