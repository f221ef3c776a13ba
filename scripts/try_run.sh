#!/usr/bin/env bash
# Starts `make run` on a free port as a new user would, sends one prediction, and stops it.
set -euo pipefail
cd "$(dirname "$0")/.."
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port

# A session of its own, so that make, tidegate and the model's process are all stopped together.
setsid make run PORT="$port" &
run=$!
trap 'kill -TERM -- "-$run" 2>/dev/null || true; wait "$run" 2>/dev/null || true' EXIT

until curl --silent --fail "$url/health-check" 2>/dev/null | grep --quiet '"READY"'; do
    kill -0 "$run" 2>/dev/null || { echo "make run ended before the model was ready" >&2; exit 1; }
    sleep 1
done
answer=$(curl --silent --show-error --fail-with-body --header 'content-type: application/json' \
    --data '{"input": {"name": "Ada"}}' "$url/predictions")
echo "$answer"
grep --quiet '"status":"succeeded"' <<<"$answer" || { echo "the prediction did not succeed" >&2; exit 1; }
