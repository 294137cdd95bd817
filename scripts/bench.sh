#!/bin/bash
# `make bench`: Pando beside the machine's limits and beside other filesystems, in one run. Writes a page (markdown) to FILE, and what it
# is made of to FILE's name with .json. What it measures, and how, stands on the page (docs/performance.md, docs/benchmarks.md).
#
#   scripts/bench.sh [FILE]      default: docs/performance.md
#
#   ROUNDS=11  FILES=1000000  BENCH_ONLY='single|listing' (sections)  BENCH_KEEP=yes (others stay as they are on FILE)  TOTAL=2000 (files of one measurement on a mount)
#   PEERS=./peers  AT=/tmp (where the clusters are)  PANDO_BIN=a program built elsewhere
#
# As root it starts the other filesystems, and takes down those it started; else what needs them is left out. A section that fails is on
# the page with its reason, and the exit status is 1. Half an hour, on a machine that has nothing else to do.
set -uo pipefail
calling_dir=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

case ${1:-} in -*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
page=${1:-$PANDO_ROOT/docs/performance.md}
case $page in /*) ;; *) page=$calling_dir/$page ;; esac
rounds=${ROUNDS:-11} files=${FILES:-1000000} only=${BENCH_ONLY:-}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "ROUNDS must be a number from 1 on" >&2; exit 2; }
[[ $files =~ ^[1-9][0-9]*$ ]] && [ "$files" -ge 10000 ] || { echo "FILES must be a number from 10000 on" >&2; exit 2; }
export PEERS=${PEERS:-./peers} PYTHONDONTWRITEBYTECODE=1
case $PEERS in /*) ;; *) PEERS=$calling_dir/${PEERS#./} ;; esac
command -v python3 >/dev/null || { echo "python3 is missing (scripts/setup.sh --test installs it)" >&2; exit 1; }
[ -d "$(dirname "$page")" ] || { echo "$(dirname "$page") is not there" >&2; exit 1; }
pando=${PANDO_BIN:-} at=${AT:-${TMPDIR:-/tmp}}
[ -n "$pando" ] || pando=$(scripts/build.sh) || exit 1
case $pando in /*) ;; *) pando=$calling_dir/$pando ;; esac
case $at in /*) ;; *) at=$calling_dir/$at ;; esac

work= measuring= peers_ran=no
[ ! -e "$PEERS/.pando-peers" ] || peers_ran=yes
end() {
    local cluster
    trap '' INT TERM HUP
    if [ -n "$measuring" ]; then
        # It takes down what it has started.
        kill -TERM "$measuring" 2>/dev/null
        wait "$measuring"
    fi
    if [ -n "$work" ]; then
        for cluster in "$work"/cluster-*; do
            [ ! -d "$cluster" ] || "$work/pando" --dir "$cluster" down >/dev/null 2>&1
        done
        # A mount that is still there must not be emptied.
        grep -qF " $work/" /proc/self/mounts || rm -rf "$work"
    fi
    [ "$(id -u)" != 0 ] || [ $peers_ran = yes ] || scripts/peers.sh down >/dev/null
}
trap end EXIT
trap 'exit 130' INT TERM HUP

commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain -- . ':!docs/performance.*' 2>/dev/null)" ] || commit="$commit with changes"
work=$(mktemp -d "$at/pando-bench.XXXXXX") || exit 1
# A copy: a build meanwhile must not change what runs.
cp "$pando" "$work/pando" || exit 1
ext4=
if [ "$(id -u)" = 0 ] && [[ single =~ ^(${only:-.*})$ ]]; then
    scripts/peers.sh up ext4 >/dev/null && ext4=$PEERS/mnt/ext4
fi
python3 scripts/bench/run.py "pando=$work/pando" "work=$work" "rounds=$rounds" "files=$files" "only=$only" "keep=${BENCH_KEEP:-}" "ext4=$ext4" \
    "page=$page" "raw=${page%.md}.json" "commit=$commit" &
measuring=$!
wait "$measuring"
code=$?
measuring=
exit $code
