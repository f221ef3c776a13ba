#!/usr/bin/env bash
# Licences, advisories and duplicates of the dependencies; see deny.toml. Without cargo-deny it is
# built once, which takes a few minutes.
set -euo pipefail
command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
exec cargo deny --offline check licenses bans sources
