#!/usr/bin/env bash
# Fuzzes with libFuzzer: scripts/fuzz.sh SECONDS [TARGET [libFuzzer's flags, or inputs to run]]. Without
# a target all of them, one after the other. See docs/fuzzing.md.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600} target=${2:-}
shift $(($# < 2 ? $# : 2))
if [[ ! -d fuzz/corpus/$target ]]; then
    echo "there is no target \`$target\`; they are: $(ls fuzz/corpus | xargs)" >&2
    exit 64
fi

# What libFuzzer needs to see which code an input reaches. These are flags of the stable compiler.
flags=(--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1)
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$flag")
done
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target the flags are not for build scripts and macros. Not --locked: the lock of this workspace
# follows the dependencies of the crates.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
    cargo build --manifest-path fuzz/Cargo.toml --target "$host" --target-dir target/fuzz
program=target/fuzz/$host/debug/tidegate-fuzz

run() {
    local name=$1
    shift
    mkdir -p "target/fuzz/found/$name" target/fuzz/crashes
    echo "== $name"
    # New inputs are written to the first folder.
    [[ $# -gt 0 ]] || set -- "target/fuzz/found/$name" "fuzz/corpus/$name"
    TIDEGATE_FUZZ=$name "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="target/fuzz/crashes/$name-" "$@"
}

if [[ -n $target ]]; then
    run "$target" "$@"
else
    for folder in fuzz/corpus/*; do
        run "$(basename "$folder")"
    done
fi
