#!/usr/bin/env bash
# Starts a cluster on this machine: scripts/cluster.sh TIDEGATE PYTHON MODEL PORT. Two API processes, two
# directors, and a Redis and a PostgreSQL server of their own, which only this user can reach. All files
# are in a temporary folder. Ctrl-C stops everything and removes the folder.
set -euo pipefail
[ $# = 4 ] || { echo "usage: scripts/cluster.sh TIDEGATE PYTHON MODEL PORT" >&2; exit 64; }
scripts=$(cd "$(dirname "$0")" && pwd)
tidegate=$(realpath "$1")
# Not `realpath`: the python of a virtual environment is a link and must be called by its own name.
python=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
model=$(realpath "$3")
name=local/$(basename "$model")
# No longer than the path of a Unix socket may be.
folder=$(mktemp --directory "${TMPDIR:-/tmp}/tidegate-cluster.XXXXXX")
declare -A pids=()  # the process ids, by name
declare -A names=() # the names of the running processes, by process id

# The folder that contains the programs of PostgreSQL; Debian does not have them in PATH.
postgres_programs() {
    local initdb
    initdb=$(command -v initdb || find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | sort --version-sort | tail -n 1)
    [ -n "$initdb" ] && dirname "$(realpath "$initdb")"
}

# The given port if it is free, otherwise another one.
free_port() {
    "$python" - "$1" <<'PYTHON'
import socket, sys
for port in (int(sys.argv[1]), 0):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(probe.getsockname()[1])
        break
PYTHON
}

# Starts a process: start NAME SIGNAL COMMAND…. It has a session of its own, so that Ctrl-C reaches this
# script alone, which stops the processes in order. The kernel sends the signal if this script is killed.
start() {
    local process=$1 signal=$2
    shift 2
    setsid setpriv --pdeathsig "$signal" "$@" >"$folder/$process.log" 2>&1 </dev/null &
    pids[$process]=$!
    names[$!]=$process
}

# Starts a process of tidegate: run NAME COMMAND…. Its command is kept in a file, to start it again.
run() {
    local process=$1
    shift
    {
        echo '#!/bin/sh'
        # A director would listen on $PORT.
        printf 'exec env -u PORT'
        printf ' %q' "${environment[@]}" "$tidegate" "$@"
        echo
    } >"$folder/$process"
    chmod 700 "$folder/$process"
    start "$process" TERM "$folder/$process"
}

# Waits until a command succeeds: wait_for NAME COMMAND…. NAME is a process; if it ends, its log is printed.
wait_for() {
    local process=$1
    shift
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return; fi
        kill -0 "${pids[$process]}" 2>/dev/null || break
        sleep 0.1
    done
    echo "$process does not work; the end of its log:" >&2
    tail -n 20 "$folder/$process.log" >&2
    exit 1
}

# Stops processes and waits for them: stop SIGNAL NAME….
stop() {
    local signal=$1 process pid
    shift
    for process in "$@"; do
        pid=${pids[$process]:-}
        if [ -n "$pid" ]; then kill -s "$signal" "$pid" 2>/dev/null || true; fi
    done
    for process in "$@"; do
        pid=${pids[$process]:-}
        [ -n "$pid" ] || continue
        for _ in $(seq 150); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}

stop_all() {
    trap '' INT TERM HUP
    if [ ${#pids[@]} -gt 0 ]; then echo "stopping"; fi
    stop TERM director-1 director-2
    stop TERM api-1 api-2
    stop TERM redis
    stop INT postgres
    rm -rf "$folder"
}
trap stop_all EXIT
trap 'exit 0' INT TERM HUP

redis=$(command -v redis-server || command -v valkey-server) || {
    "$scripts/apt.sh" redis-server
    redis=$(command -v redis-server)
}
postgres=$(postgres_programs) || {
    "$scripts/apt.sh" postgresql
    postgres=$(postgres_programs)
}

start redis TERM "$redis" --port 0 --unixsocket "$folder/redis.sock" --unixsocketperm 700 \
    --dir "$folder" --save '' --appendonly yes --maxmemory-policy noeviction

# PostgreSQL refuses to run as root.
as_owner=()
mkdir "$folder/postgres"
if [ "$(id -u)" = 0 ]; then
    as_owner=(--reuid=postgres --regid=postgres --clear-groups)
    chmod 711 "$folder"
    chown postgres:postgres "$folder/postgres"
fi
(cd / && setpriv "${as_owner[@]}" "$postgres/initdb" --pgdata "$folder/postgres/data" --username tidegate \
    --auth trust --encoding UTF8 --no-locale --no-sync) >"$folder/initdb.log" 2>&1 \
    || { cat "$folder/initdb.log" >&2; exit 1; }
start postgres INT "${as_owner[@]}" "$postgres/postgres" -D "$folder/postgres/data" \
    -c listen_addresses= -c "unix_socket_directories=$folder/postgres"
wait_for postgres "$postgres/pg_isready" --host "$folder/postgres" --username tidegate
"$postgres/createdb" --host "$folder/postgres" --username tidegate tidegate
wait_for redis test -S "$folder/redis.sock"

(umask 077 && "$python" -c 'import secrets; print(secrets.token_hex(32))' >"$folder/directors.token")
environment=(
    "TIDEGATE_REDIS=unix://$folder/redis.sock"
    "TIDEGATE_TOKEN_FILE=$folder/directors.token"
)
api_1=http://127.0.0.1:$(free_port "$4")
api_2=http://127.0.0.1:$(free_port "$(($4 + 1))")
for number in 1 2; do
    url=api_$number
    run "api-$number" api --port "${!url##*:}" \
        --postgres "postgresql://tidegate@/tidegate?host=$folder/postgres" --data-dir "$folder/files"
done
for number in 1 2; do
    run "director-$number" director "$model" --name "director-$number" --api "$api_1,$api_2" --python "$python"
done

# Succeeds if an API process serves the model.
is_registered() {
    "$python" - "$1/v1/models/$name" <<'PYTHON'
import json, sys, urllib.request
reply = json.load(urllib.request.urlopen(sys.argv[1], timeout=5))
sys.exit(reply["latest_version"] is None)
PYTHON
}
echo "starting 2 API processes and 2 directors; logs and commands are in $folder"
for number in 1 2; do
    url=api_$number
    wait_for "api-$number" "$python" -c "import urllib.request; urllib.request.urlopen('${!url}/health-check', timeout=5)"
done
for url in "$api_1" "$api_2"; do
    wait_for director-1 is_registered "$url"
done

if [ "$name" = local/hello ]; then input='{"name": "Ada"}'; else input='{}'; fi
cat <<READY
ready: $api_1 and $api_2 serve $name

  # Create a prediction on one API process and wait for its end, look it up on the other
  curl -s $api_1/v1/models/$name/predictions -H 'content-type: application/json' -H 'prefer: wait' -d '{"input": $input}'
  curl -s $api_2/v1/predictions

  # Create a hundred, kill a director, and count the ends
  for n in \$(seq 100); do curl -s -o /dev/null $api_1/v1/models/$name/predictions -H 'content-type: application/json' -d '{"input": $input}'; done; kill -9 ${pids[director-1]}
  curl -s $api_2/v1/predictions | grep -o '"status":"[a-z]*"' | sort | uniq -c
  $folder/director-1     # starts it again

  # Kill an API process; the other one continues
  kill -9 ${pids[api-1]}
  $folder/api-1          # starts it again

  # Upload a file to one API process, list it on the other
  curl -s $api_1/v1/files -F content=@README.md
  curl -s $api_2/v1/files

  # Look into the stores
  redis-cli -s $folder/redis.sock --scan
  psql -h $folder/postgres -U tidegate tidegate -c '\\dt tidegate.*'

Ctrl-C stops everything.
READY

# Reports processes that end, until Ctrl-C.
while [ ${#names[@]} -gt 0 ]; do
    ended=
    wait -n -p ended 2>/dev/null || true
    [ -n "$ended" ] || break
    echo "${names[$ended]} (process $ended) has ended"
    unset "pids[${names[$ended]}]" "names[$ended]"
done
