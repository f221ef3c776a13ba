#!/usr/bin/env bash
# Makes a virtual environment: scripts/venv.sh PYTHON DIR. Debian keeps the needed module in a
# package of its own, which is installed when we may.
set -euo pipefail
python=$1 dir=$2
command -v "$python" >/dev/null || { echo "there is no '$python'; install Python 3.10 or newer, or call make PYTHON=/path/to/python3" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "'$python' is older than 3.10; call make PYTHON=/path/to/python3" >&2; exit 1; }
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "installing python3-venv, which '$python' lacks" >&2
    if [ "$(id -u)" = 0 ]; then sudo=""; else sudo="sudo"; fi
    $sudo apt-get update -qq && $sudo apt-get install -y -qq python3-venv >/dev/null
fi
"$python" -m venv "$dir"
