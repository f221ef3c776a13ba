#!/usr/bin/env bash
# Installs the proxies that bench/router/run.py measures into .venv-bench-router. A package that
# does not install here is named, and the benchmark runs without it.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=.venv-bench-router

[ -x "$venv/bin/pip" ] || scripts/venv.sh "${PYTHON:-python3}" "$venv"
if [ ! -e "$venv/peers" ] || [ bench/router/requirements.txt -nt "$venv/peers" ]; then
    grep -v '^#' bench/router/requirements.txt | while read -r package; do
        echo "installing $package"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" || echo "$package is left out"
    done
    touch "$venv/peers"
fi
