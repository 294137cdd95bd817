#!/bin/bash
# A mount of Pando beside the peers of `make peers`: create, stat and remove of empty files through system calls, in turns, and how
# soon one mount sees what another did; and everyday programs with many small files, beside bindfs and ext4. Writes a table (markdown) to FILE and everything it measured to FILE's name with .json.
#
#   scripts/bench-mount.sh [FILE]      default: ./mount.md
#
#   PROGRAM_ROUNDS=3  PROGRAM_FILES=10000 (of everyday programs; needs git for one of them)
#   ROUNDS=11  TOTAL=2000 (files of one measurement, all processes together)  PROCESSES='1 4 8'  CLUSTERS='1 4' (servers of each)
#   PEERS=./peers  AT=/tmp (where the clusters are)  PANDO_BIN=a program built elsewhere
#
# Needs root. Starts the peers that do not run, and takes them down afterwards if none ran. Only ratios within one run mean something,
# and only on a machine that has nothing else to do.
set -uo pipefail
calling_dir=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

case ${1:-} in -*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
file=${1:-mount.md}
case $file in /*) ;; *) file=$calling_dir/$file ;; esac
raw=${file%.md}.json
rounds=${ROUNDS:-11} total=${TOTAL:-2000} processes=${PROCESSES:-1 4 8} servers=${CLUSTERS:-1 4}
program_rounds=${PROGRAM_ROUNDS:-3} program_files=${PROGRAM_FILES:-10000}
export PEERS=${PEERS:-./peers}
case $PEERS in /*) ;; *) PEERS=$calling_dir/${PEERS#./} ;; esac

[ "$(id -u)" = 0 ] || { echo "The peers are mounted by root: run the same command with sudo." >&2; exit 1; }
command -v python3 >/dev/null || { echo "python3 is missing (scripts/setup.sh --test installs it)" >&2; exit 1; }
: >"$file" && : >"$raw" || exit 1
pando=${PANDO_BIN:-$CARGO_TARGET_DIR/release/pando}
[ -x "$pando" ] || pando=$(scripts/build.sh) || exit 1

peers_ran=no work=
[ ! -e "$PEERS/.pando-peers" ] || peers_ran=yes
end() {
    local at cluster
    if [ -n "$work" ]; then
        # First the mounts: without servers they would wait for them.
        for at in "$work"/mnt-*; do
            ! mountpoint -q "$at" || "$work/pando" umount "$at" >/dev/null 2>&1 || umount -l "$at"
        done
        for cluster in "$work"/cluster-*; do
            "$work/pando" --dir "$cluster" down >/dev/null 2>&1
        done
        # A mount that is still there must not be emptied.
        grep -qF " $work/" /proc/self/mounts || rm -rf "$work"
    fi
    [ $peers_ran = yes ] || scripts/peers.sh down >/dev/null
}
trap end EXIT
trap 'exit 130' INT TERM HUP

load=$(cut -d' ' -f1-3 /proc/loadavg)
code=0
scripts/peers.sh up >/dev/null || { code=1; echo "going on without them" >&2; }
work=$(mktemp -d "${AT:-${TMPDIR:-/tmp}}/pando-bench.XXXXXX") || exit 1
# A copy: a build meanwhile must not change what runs.
cp "$pando" "$work/pando" || exit 1
pando=$work/pando

# Whom to measure: name, mount, phases. Phases of a mount that believes for a second look at what the kernel remembers; those with
# timeout 0, and those that believe nothing anyway, at what it must ask for.
systems=()
add() { ! mountpoint -q "$2" || systems+=("$1 $2 $3"); }
for n in $servers; do
    cluster=$work/cluster-$n
    "$pando" --dir "$cluster" up --servers "$n" --durability async >/dev/null || exit 1
    for timeout in 1 0; do
        for side in a b; do
            at=$work/mnt-$n-$timeout-$side
            mkdir "$at"
            "$pando" --dir "$cluster" mount --timeout $timeout "$at" >/dev/null || exit 1
        done
    done
    add "pando-$n" "$work/mnt-$n-1-a" create,restat,remove
    add "pando-$n-nocache" "$work/mnt-$n-0-a" create,stat,remove
done
for name in bindfs moosefs; do
    add $name "$PEERS/mnt/$name" create,restat,remove
    add $name-nocache "$PEERS/mnt/$name-nocache" create,stat,remove
done
add cephfs "$PEERS/mnt/cephfs" create,stat,restat,remove
add tmpfs "$PEERS/mnt/tmpfs" create,stat,remove
add ext4 "$PEERS/mnt/ext4" create,stat,remove

# line ROUND NAME PROCESSES: what `pando bench posix` says, as one object of a line.
line() { python3 scripts/bench/mount.py note "$work/measured" "$@"; }
measure() { # ROUND
    local i system count p
    for p in $processes; do
        count=${#systems[@]}
        for ((i = 0; i < count; i++)); do
            # Whoever comes first is not always the same.
            read -r name at phases <<<"${systems[$(((i + $1) % count))]}"
            "$pando" --json bench posix "$at" -n $(((total + p - 1) / p)) --processes "$p" --phases "$phases" >"$work/one" ||
                { echo "$name could not be measured with $p processes: $(cat "$work/one")" >&2; code=1; continue; }
            line "$1" "$name" "$p" <"$work/one" || return
        done
    done
}
# The first round learns what all others know.
measure 0 && : >"$work/measured" || exit 1
for ((round = 1; round <= rounds; round++)); do
    measure "$round" || exit 1
    echo "round $round of $rounds done" >&2
done

# Everyday programs, one at a time.
python3 scripts/bench/programs.py archive "$work/programs.tar" "$program_files" || exit 1
for ((round = 1; round <= program_rounds; round++)); do
    for ((i = 0; i < ${#systems[@]}; i++)); do
        read -r name at _ <<<"${systems[$(((i + round) % ${#systems[@]}))]}"
        case $name in *-nocache) continue ;; pando-* | bindfs | ext4) ;; *) continue ;; esac
        python3 scripts/bench/programs.py measure "$at" "$work/programs.tar" >"$work/one" ||
            { echo "programs on $name could not be measured" >&2; code=1; continue; }
        line "$round" "$name" 0 <"$work/one" || exit 1
    done
    echo "round $round of $program_rounds of everyday programs done" >&2
done

for n in $servers; do
    for timeout in 1 0; do
        python3 scripts/bench/mount.py seen "$n" $timeout "$work/mnt-$n-$timeout-a" "$work/mnt-$n-$timeout-b" >>"$work/seen" || code=1
    done
done
python3 scripts/bench/mount.py table "$work/measured" "$work/seen" "$raw" "rounds=$rounds" "files=$total" "program_files=$program_files" "load=$load" >"$file" || exit 1
cat "$file"
exit $code
