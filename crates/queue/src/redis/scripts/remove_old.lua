-- Removes messages of one stream, claimed or not. KEYS: queue. ARGV: shard, then message, account and job of
-- each. Returns their number.
local queue, shard = KEYS[1], ARGV[1]
local stream, ids = stream_of(queue, shard), {}
for i = 2, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
end
redis.call('XACK', stream, GROUP, unpack(ids))
local count = redis.call('XDEL', stream, unpack(ids))
for i = 2, #ARGV, 3 do
  clean_up(queue, shard, ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
return count
