-- Posts one JSON body again and again; prints what came of it as one line of JSON.
-- Arguments after `--`: the path, then the body or `@file`.
function init(args)
  local body = args[2]
  if body:sub(1, 1) == "@" then
    local file = assert(io.open(body:sub(2), "rb"))
    body = file:read("*a")
    file:close()
  end
  wrk.method = "POST"
  wrk.path = args[1]
  wrk.body = body
  wrk.headers["Content-Type"] = "application/json"
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"bytes":%d,"duration_us":%d,"bad_status":%d,"socket_errors":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.bytes, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
