#!/usr/bin/env bash
# Builds and installs tidegate into a virtual environment: scripts/install.sh VENV. pip would be
# silent for minutes, so one line per compiled crate shows that it is working.
set -uo pipefail
venv=$1
log=target/install.log
mkdir -p target
echo "building and installing tidegate; the first time takes a few minutes"
"$venv/bin/pip" install --disable-pip-version-check --verbose --no-deps --force-reinstall . 2>&1 | tee "$log" | grep --line-buffered -E '^ *(Compiling|Finished|Successfully)'
status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then
    tail -n 40 "$log" >&2
    echo "the installation failed; all of it is in $log" >&2
    exit "$status"
fi
