-- Messages of a queue that were pushed at least `age` milliseconds ago. KEYS: queue. ARGV: shards, age, limit.
-- Returns shard, id and fields of each.
local queue = KEYS[1]
local before = string.format('%.0f', now_ms() - tonumber(ARGV[2]))
local old = {}
for shard = 0, shards_of(queue, ARGV[1]) - 1 do
  for _, message in ipairs(redis.call('XRANGE', stream_of(queue, shard), '-', before, 'COUNT', ARGV[3])) do
    old[#old + 1] = { shard, message[1], message[2] }
  end
end
return old
