#!/bin/bash
# Instructions of one operation (null, create, stat, readdir, mkdir), of the server and of the client, counted by callgrind and compared with
# scripts/bench/instructions.tsv: more than 10 % above it fails.
#
#   scripts/instructions.sh                       count and compare; exit code 3 if this compiler has no baseline
#   scripts/instructions.sh --record 'REASON'     make what is counted the baseline of this compiler and build
#   scripts/instructions.sh --top 20              which functions they are in
#
#   PANDO_PROFILE=ci: of the program that the stages of `make test` run (default: release)
#   PANDO_BIN=a program built elsewhere, by this compiler    OPERATIONS=2000 (counted of each kind; the baseline is for so many)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
action=compare argument= profile=${PANDO_PROFILE:-release}
case ${1:-} in
    '') ;;
    --record) action=record argument=${2:?why} ;;
    --top) action=top argument=${2:-20} ;;
    *) usage ;;
esac
for program in valgrind python3; do
    command -v $program >/dev/null || { echo "$program is missing (scripts/setup.sh --test installs it)" >&2; exit 1; }
done
if [ -n "${PANDO_BIN:-}" ]; then
    pando=$PANDO_BIN
elif [ "$profile" = ci ]; then
    source scripts/test.d/lib.sh
    pando=$(ci_build pando-cli --bin pando) || exit 1
else
    pando=$(scripts/build.sh | tail -n 1) || exit 1
fi

# What makes two programs of one source different: compiler, machine, profile, library. What was built otherwise has a baseline of its own.
compiler=$(rustc --version | cut -d' ' -f1,2)
build="$(uname -m) $profile $(ldd "$pando" | grep -o 'librocksdb\.so[.0-9]*' | head -n 1)"
build+=$(env | sed -n 's/^CARGO_PROFILE_RELEASE_\(LTO\|CODEGEN_UNITS\|OPT_LEVEL\|DEBUG\)=/ \L\1=/p' | sort | tr -d '\n')
[ -z "${RUSTFLAGS:-}" ] || build+=" $RUSTFLAGS"

folder=$(mktemp -d "${TMPDIR:-/tmp}/pando-instructions.XXXXXX") || exit 1
running=
end() {
    [ -z "$running" ] || kill "$running" 2>/dev/null
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM HUP

# Large copies by `rep movsb` would count an instruction for each byte; where they begin differs from machine to machine. Of the processor
# valgrind shows the same everywhere.
GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000 TMPDIR=$folder \
    valgrind --quiet --tool=callgrind --separate-threads=yes '--dump-before=*counted*mark*' --callgrind-out-file="$folder/out" \
    "$pando" --json bench counted -n "${OPERATIONS:-2000}" >"$folder/said" 2>"$folder/log" &
running=$!
wait "$running"
code=$?
running=
if [ $code -ne 0 ]; then
    cat "$folder/said" "$folder/log" >&2
    echo "counting failed (exit code $code)" >&2
    exit 1
fi
case $action in
    top) python3 scripts/bench/instructions.py top "$folder" "$argument" ;;
    record) python3 scripts/bench/instructions.py record "$folder" "$compiler" "$build" "$argument" ;;
    compare) python3 scripts/bench/instructions.py compare "$folder" "$compiler" "$build" ;;
esac
