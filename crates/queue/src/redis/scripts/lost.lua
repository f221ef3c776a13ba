-- Transfers messages whose consumer did not renew its claim. KEYS: queue. ARGV: shards, consumer that gets
-- them, idle time in milliseconds, limit. Returns shard, id, fields and number of deliveries of each.
local queue, limit = KEYS[1], tonumber(ARGV[4])
local lost = {}

local function transfer(shard, id, deliveries)
  local stream = stream_of(queue, shard)
  local fields = fields_of(stream, id)
  if not fields then
    -- It was deleted by other means; its job is pushed again from the store.
    redis.call('XACK', stream, GROUP, id)
    return
  end
  if #redis.call('XCLAIM', stream, GROUP, ARGV[2], ARGV[3], id, 'JUSTID') > 0 then
    lost[#lost + 1] = { shard, id, fields, deliveries }
  end
end

for shard = 0, shards_of(queue, ARGV[1]) - 1 do
  local from = '-'
  while #lost < limit do
    local found = redis.pcall('XPENDING', stream_of(queue, shard), GROUP, 'IDLE', ARGV[3], from, '+', 100)
    if found.err or #found == 0 then
      break
    end
    for _, entry in ipairs(found) do
      from = '(' .. entry[1]
      if entry[2] ~= RETURNED and #lost < limit then
        transfer(shard, entry[1], entry[4])
      end
    end
  end
end
return lost
