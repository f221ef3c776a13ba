-- KEYS: queue. ARGV: shards. Returns how many messages wait, how many are claimed, and for how many milliseconds
-- the oldest one has waited, or -1. The id of a message begins with the time of its push.
local queue, waiting, claimed, oldest = KEYS[1], 0, 0, nil

local function see(pushed_at)
  oldest = math.min(oldest or pushed_at, pushed_at)
end

for shard = 0, shards_of(queue, ARGV[1]) - 1 do
  local stream = stream_of(queue, shard)
  local delivered, last = group_of(stream)
  waiting = waiting + math.max(redis.call('XLEN', stream) - delivered, 0)
  claimed = claimed + delivered
  local undelivered = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
  if undelivered then
    see(tonumber(string.match(undelivered[1], '^%d+')))
  end
end
local returned = redis.call('ZCARD', 'meta:returned:' .. queue)
local first = redis.call('ZRANGE', 'meta:returned:' .. queue, 0, 0, 'WITHSCORES')
if first[2] then
  see(tonumber(first[2]))
end
local age = oldest and math.max(now_ms() - oldest, 0) or -1
return { waiting + returned, math.max(claimed - returned, 0), age }
