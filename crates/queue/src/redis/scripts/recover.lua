-- Lets the messages wait again that were delivered to a consumer and that it does not know: the reply was
-- lost, or an earlier process with its name took them. Those that were delivered too often are left to the
-- sweep. KEYS: queue. ARGV: shards, consumer, most deliveries, shard|message of the messages that it knows.
-- Returns their number.
local queue, consumer, most = KEYS[1], ARGV[2], tonumber(ARGV[3])
local held = {}
for i = 4, #ARGV do
  held[ARGV[i]] = true
end
local count = 0
for shard = 0, shards_of(queue, ARGV[1]) - 1 do
  local stream = stream_of(queue, shard)
  local found = redis.pcall('XPENDING', stream, GROUP, '-', '+', 1000, consumer)
  if not found.err then
    for _, entry in ipairs(found) do
      if not held[shard .. '|' .. entry[1]] and entry[4] < most then
        give_back(queue, shard, entry[1], entry[4])
        count = count + 1
      end
    end
  end
end
return count
