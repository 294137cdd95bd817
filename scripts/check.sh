#!/bin/bash
# `make check`: what takes at most two minutes when everything was built before: formatting, tidy, `cargo check`, the unit tests of the
# packages that changed and of those that stand on them, and 20 seeds. What it leaves out stands in its last line.
#
#   scripts/check.sh [SINCE]     changed: since this commit (default: HEAD, so what is not committed)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh
since=${1:-HEAD} seeds=20

step() {
    local begun=$SECONDS
    printf '%-28s' "$1"
    if ! "${@:2}" >"$log" 2>&1; then
        echo "FAILED"
        tail -n 60 "$log"
        exit 1
    fi
    echo "$((SECONDS - begun)) s"
}

# changed: packages with changes and those that depend on them, one on each line.
changed() {
    { git diff --name-only "$since" -- crates; git ls-files --others --exclude-standard -- crates; } | cut -d/ -f2 | sort -u |
        python3 -c '
import json, subprocess, sys
packages = json.loads(subprocess.check_output(["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]))["packages"]
needs = {p["name"]: {d["name"] for d in p["dependencies"]} for p in packages}
found = {f"pando-{line.strip()}" for line in sys.stdin} & needs.keys()
while more := {name for name in needs if needs[name] & found} - found:
    found |= more
print(*sorted(found), sep="\n")'
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
step "formatting" cargo fmt --all --check
step "tidy" cargo run --locked --quiet --package pando-tidy
step "cargo check" cargo check --workspace --all-targets --locked
mapfile -t packages < <(changed)
if [ -n "${packages[*]}" ]; then
    step "unit tests of ${#packages[@]} packages" cargo test --locked --lib --bins "${packages[@]/#/--package=}"
fi
step "$seeds seeds" cargo run --locked --quiet --package pando-sim -- run --seeds "0..$seeds"
echo "left out: clippy, tests of whole programs, plants, regressions, real processes, mounts (all are in: make test)"
