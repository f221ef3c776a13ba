#!/usr/bin/env bash
# Runs the crates' tests: with cargo-nextest where it is installed, else with cargo test. The selection of
# packages is that of BUILD in the Makefile, so that both share what they compile. tidegate-python has no
# Rust tests.
set -euo pipefail
if cargo nextest --version >/dev/null 2>&1; then
    exec cargo nextest run --locked --workspace --exclude tidegate-floor "$@"
fi
exec cargo test --locked --workspace --exclude tidegate-floor "$@"
