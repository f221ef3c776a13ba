-- KEYS: queue. ARGV: shards. Returns how many messages wait and how many are claimed.
local queue, waiting, claimed = KEYS[1], 0, 0
for shard = 0, shards_of(queue, ARGV[1]) - 1 do
  local stream = stream_of(queue, shard)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  local delivered = 0
  if not groups.err then
    for _, group in ipairs(groups) do
      if field(group, 'name') == GROUP then
        delivered = field(group, 'pending')
      end
    end
  end
  waiting = waiting + math.max(redis.call('XLEN', stream) - delivered, 0)
  claimed = claimed + delivered
end
local returned = redis.call('ZCARD', 'meta:returned:' .. queue)
return { waiting + returned, math.max(claimed - returned, 0) }
