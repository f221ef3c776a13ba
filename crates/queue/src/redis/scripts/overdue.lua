-- ARGV: window in milliseconds or '', limit. Returns members of `meta:deadlines` with their deadlines.
local now = now_ms()
local from = ARGV[1] == '' and '-inf' or string.format('%.0f', now - tonumber(ARGV[1]))
return redis.call(
  'ZRANGEBYSCORE', 'meta:deadlines', from, string.format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, ARGV[2]
)
