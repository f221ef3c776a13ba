-- KEYS: queue. ARGV: consumer, then shard and message of each claim. Returns 1 for each claim that is held.
local queue, consumer = KEYS[1], ARGV[1]
local held = {}
for i = 2, #ARGV, 2 do
  local stream, id = stream_of(queue, ARGV[i]), ARGV[i + 1]
  local is_held = 0
  if pending(stream, id) == consumer then
    -- JUSTID: this is not a delivery. A message that was deleted is not claimed.
    is_held = #redis.call('XCLAIM', stream, GROUP, consumer, 0, id, 'JUSTID')
  end
  held[#held + 1] = is_held
end
return held
