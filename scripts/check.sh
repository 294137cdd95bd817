#!/bin/bash
# `make check`: what takes at most two minutes when everything was built before. Formatting, tidy,
# `cargo check`, the unit tests of the packages that changed and of those that stand on them, and 20 seeds.
# Its last line says what it leaves out. Building takes longer than that after an edit of what nearly all
# stand on (`types`, `format`, `server`).
#
#   scripts/check.sh [SINCE]     changed: since this commit (default: HEAD, so what is not committed)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh
source scripts/test.d/lib.sh
since=${1:-HEAD} seeds=20

# step WHAT COMMAND...: runs it; says how long it took, or shows the end of what it said and ends.
step() {
    local begun=$SECONDS
    printf '%-32s' "$1"
    if ! "${@:2}" >"$log" 2>&1; then
        echo "FAILED"
        tail -n 60 "$log"
        exit 1
    fi
    echo "$((SECONDS - begun)) s"
}

# changed: packages with changes, those that stand on them, and those whose tests do. Of each the name, and
# whether it is a `lib` or a `bin`.
changed() {
    { git diff --name-only "$since" -- crates; git ls-files --others --exclude-standard -- crates; } |
        python3 -c '
import json, subprocess, sys
metadata = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
packages = json.loads(subprocess.check_output(metadata))["packages"]
def needs(of_tests):
    kept = lambda d: of_tests or d["kind"] != "dev"
    return {p["name"]: {d["name"] for d in p["dependencies"] if kept(d)} for p in packages}
product = needs(of_tests=False)
found = {"pando-" + line.split("/")[1] for line in sys.stdin} & product.keys()
while more := {name for name in product if product[name] & found} - found:
    found |= more
found |= {name for name, needed in needs(of_tests=True).items() if needed & found}
for p in packages:
    if p["name"] in found:
        is_lib = any("lib" in t["kind"] for t in p["targets"])
        print(p["name"], "lib" if is_lib else "bin")'
}

# unit_tests: those of the packages in `packages`. Cargo refuses `--lib` where none of them has a library.
unit_tests() {
    local libs=()
    [[ " ${packages[*]} " != *" lib "* ]] || libs=(--lib)
    printf '%s\n' "${packages[@]}" | sed 's/^\([^ ]*\) .*/--package=\1/' |
        xargs cargo test --locked "${libs[@]}" --bins
}

simulate() {
    local sim
    sim=$(ci_build pando-sim --features plant) && "$sim" run --seeds "0..$seeds"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
step "formatting" cargo fmt --all --check
step "tidy" cargo run --locked --quiet --package pando-tidy
step "cargo check" cargo check --workspace --all-targets --locked
list=$(changed)
if [ -n "$list" ]; then
    mapfile -t packages <<<"$list"
    step "unit tests of ${#packages[@]} packages" unit_tests
else
    echo "no package changed since $since"
fi
step "$seeds seeds" simulate
echo "left out: clippy, tests of whole programs, plants, regressions, real processes, mounts (make test has all)"
