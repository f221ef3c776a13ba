#!/usr/bin/env bash
# Sets up what bench/run.py measures: the peers in .venv-bench, the floor in target/wheel, and our own
# wheel in .venv-bench-tidegate, where no cog is installed. TIDEGATE_BIN=… skips the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

# make_venv DIR: unless it is there.
make_venv() {
    [ -x "$1/bin/pip" ] || scripts/venv.sh "$python" "$1"
}

# is_older MARKER PATH…: whether something that we build from has changed since.
is_older() {
    local marker=$1
    shift
    [ ! -e "$marker" ] || [ -n "$(find "$@" -type f -newer "$marker" -not -path '*/__pycache__/*' -not -name '*.so' -print -quit)" ]
}

make_venv .venv-bench
if is_older .venv-bench/peers bench/requirements.txt; then
    echo "installing the peers: cog, mosec, LitServe, FastAPI"
    .venv-bench/bin/pip install --quiet --disable-pip-version-check -r bench/requirements.txt
    touch .venv-bench/peers
fi

cargo build --locked --quiet --profile wheel -p tidegate-floor

if [ -z "${TIDEGATE_BIN:-}" ]; then
    make_venv .venv-bench-tidegate
    if is_older .venv-bench-tidegate/installed crates python/src python/tidegate python/Cargo.toml Cargo.lock pyproject.toml; then
        echo "building and installing tidegate; the first time takes a few minutes"
        .venv-bench-tidegate/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
        touch .venv-bench-tidegate/installed
    fi
fi

command -v wrk >/dev/null || echo "wrk is not installed (apt-get install wrk): a slower Python client takes its place"
