#!/bin/bash
# `make peers`: other filesystems, from Debian's packages, beside which Pando is measured (docs/benchmarks.md).
#
#   scripts/peers.sh up [NAME...]      start those that do not run: tmpfs ext4 bindfs moosefs cephfs, or only some
#   scripts/peers.sh down [NAME...]    unmount and stop what was started, and remove what was in it
#   scripts/peers.sh status            what runs, and how each is set
#
# All they need is below the folder PEERS (default: ./peers), mounts in PEERS/mnt. Needs root. A peer that cannot be started
# is left out, with the reason, and the exit status is 1. Nothing in /etc is changed and no service of a package is started.
set -uo pipefail
calling_dir=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/peers/lib.sh
source scripts/peers/local.sh
source scripts/peers/moosefs.sh
source scripts/peers/cephfs.sh

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
command=$1
shift
case $command in up | down | status) ;; *) usage ;; esac
every=(tmpfs ext4 bindfs moosefs cephfs)
names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${every[@]}")
for name in "${names[@]}"; do
    case " ${every[*]} " in *" $name "*) ;; *) echo "there is no peer $name; there are: ${every[*]}" >&2; exit 2 ;; esac
done

peers=${PEERS:-./peers}
case $peers in /*) ;; *) peers=$calling_dir/${peers#./} ;; esac
case $peers in *[[:space:],:]*) echo "$peers: the path must have no spaces, commas and colons, which the peers' options cannot have" >&2; exit 2 ;; esac

if [ "$command" = status ]; then
    for name in "${names[@]}"; do
        if [ -d "$peers" ] && "${name}_runs"; then describe "$name"; else echo "$name does not run"; fi
    done
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "Only root can mount and start the peers: run the same command with sudo." >&2
    exit 1
fi
if [ -e "$peers" ] && [ ! -e "$peers/.pando-peers" ] && [ -n "$(ls -A "$peers" 2>&1)" ]; then
    echo "$peers is there and was not made by this script: give another folder (PEERS=...)" >&2
    exit 1
fi
if [ "$command" = down ] && [ ! -e "$peers/.pando-peers" ]; then
    echo "no peers run from $peers"
    exit 0
fi
mkdir -p "$peers/mnt" "$peers/run" && touch "$peers/.pando-peers" || exit 1
# One at a time: two would start everything twice. What is started does not keep the lock.
exec {lock}>"$peers/run/lock"
flock -n "$lock" || { echo "another $0 is at work in $peers" >&2; exit 1; }

failed=()
for name in "${names[@]}"; do
    if [ "$command" = up ]; then
        if "${name}_runs"; then
            echo "$name runs already"
        elif ! up_one "$name"; then
            failed+=("$name")
        fi
    elif ! down_one "$name"; then
        failed+=("$name")
    fi
done

if [ "$command" = up ]; then
    echo
    for name in "${names[@]}"; do
        ! "${name}_runs" || describe "$name"
    done
else
    rest=$(find "$peers" -mindepth 1 ! -path "$peers/mnt" ! -path "$peers/run" ! -path "$peers/run/*.log" \
        ! -path "$peers/run/lock" ! -name .pando-peers -print -quit)
    [ -n "$rest" ] || [ ${#failed[@]} -gt 0 ] || rm -r "$peers"
fi
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]} (see above)" >&2
    exit 1
fi
