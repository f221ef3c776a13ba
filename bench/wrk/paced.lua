-- Posts one JSON body at a steady rate; prints what came of it as one line of JSON.
-- Arguments after `--`: the path, the body, and the milliseconds between two requests of a connection.
function init(args)
  wrk.method = "POST"
  wrk.path = args[1]
  wrk.body = args[2]
  wrk.headers["Content-Type"] = "application/json"
  pause = tonumber(args[3])
end

function delay()
  return pause
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"duration_us":%d,"bad_status":%d,"socket_errors":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
