-- Moves a message to the dead letters. KEYS: queue. ARGV: shard, message, consumer, reason, most dead letters.
-- Returns whether the consumer had the message.
local queue, shard, id = KEYS[1], ARGV[1], ARGV[2]
local stream = stream_of(queue, shard)
if pending(stream, id) ~= ARGV[3] then
  return 0
end
local fields = fields_of(stream, id) or {}
local data = cjson.encode(fields)
local size = 0
for _, text in ipairs(fields) do
  size = size + #text
end
if #data > 65536 then
  data = string.sub(data, 1, 4096)
end
redis.call(
  'XADD', 'meta:dead', 'MAXLEN', '~', ARGV[5], '*',
  'queue', queue, 'stream', stream, 'message', id, 'reason', ARGV[4], 'size', size, 'data', data
)
delete(queue, shard, id, field(fields, 'account'), field(fields, 'id'))
return 1
