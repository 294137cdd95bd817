#!/usr/bin/env bash
# Sequential write and read of one large file through the mount, against bindfs (a FUSE that only passes on) over a folder
# of the same disk, in turns. Prints both and the ratios. Needs /dev/fuse and an idle machine; never part of `make test`.
#
#   scripts/data-speed.sh [--size MIB] [--rounds N] [--at FOLDER] [--durability sync|async]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/env.sh

size=1024 rounds=3 at=${TMPDIR:-/tmp} durability=sync
while [ $# -gt 0 ]; do
    case $1 in
        --size) size=$2 ;;
        --rounds) rounds=$2 ;;
        --at) at=$2 ;;
        --durability) durability=$2 ;;
        *) sed -n '2,5p' "$0"; exit 2 ;;
    esac
    shift 2
done
if ! command -v bindfs >/dev/null; then
    echo "bindfs is missing: installing it"
    $([ "$(id -u)" = 0 ] || echo sudo) apt-get install -y --no-install-recommends bindfs >/dev/null
fi
pando=${PANDO_BIN:-$CARGO_TARGET_DIR/release/pando}
[ -x "$pando" ] || { echo "there is no $pando: run scripts/build.sh first" >&2; exit 1; }

folder=$(mktemp -d "$at/pando-speed.XXXXXX")
cleanup() {
    "$pando" --dir "$folder/cluster" umount "$folder/mnt" >/dev/null 2>&1 || true
    "$pando" --dir "$folder/cluster" down >/dev/null 2>&1 || true
    umount "$folder/bind" 2>/dev/null || fusermount -u "$folder/bind" 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT
mkdir "$folder/mnt" "$folder/bind" "$folder/behind"
head -c "${size}M" /dev/urandom >"$folder/source"
sum=$(sha256sum <"$folder/source")
"$pando" --dir "$folder/cluster" up --servers 1 --durability "$durability" >/dev/null

mount_both() {
    "$pando" --dir "$folder/cluster" mount "$folder/mnt" >/dev/null
    bindfs "$folder/behind" "$folder/bind"
}
umount_both() {
    "$pando" --dir "$folder/cluster" umount "$folder/mnt" >/dev/null
    umount "$folder/bind" 2>/dev/null || fusermount -u "$folder/bind"
}
# MiB per second of what dd does with its arguments.
rate() {
    local began ended
    began=$(date +%s%N)
    dd bs=1M status=none "$@"
    ended=$(date +%s%N)
    echo $((size * 1000000000 / (ended - began)))
}
middle() { sort -n | sed -n "$(((rounds + 1) / 2))p"; }

for round in $(seq "$rounds"); do
    mount_both
    for what in mnt bind; do
        rate if="$folder/source" of="$folder/$what/file" >>"$folder/write.$what"
        rm "$folder/$what/file"
        sync
        rate if="$folder/source" of="$folder/$what/file" conv=fsync >>"$folder/fsync.$what"
    done
    # What the mounts' kernels have kept goes, what the disk's has stays, for both.
    umount_both
    mount_both
    for what in mnt bind; do
        rate if="$folder/$what/file" of=/dev/null >>"$folder/read.$what"
    done
    [ "$(sha256sum <"$folder/mnt/file")" = "$sum" ] || { echo "what was read is not what was written" >&2; exit 1; }
    rm "$folder/mnt/file" "$folder/bind/file"
    umount_both
    echo "round $round of $rounds done" >&2
done
printf '%-14s %10s %10s %7s   (MiB/s, %s MiB, durability %s, the middle of %s)\n' '' pando bindfs ratio "$size" "$durability" "$rounds"
for what in write fsync read; do
    ours=$(middle <"$folder/$what.mnt") theirs=$(middle <"$folder/$what.bind")
    name=$what
    [ "$what" = fsync ] && name='write + fsync'
    printf '%-14s %10s %10s %7s\n' "$name" "$ours" "$theirs" "$(awk "BEGIN { printf \"%.2f\", $ours / $theirs }")"
done
