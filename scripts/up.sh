#!/bin/bash
# `make up`: from a fresh clone to a mounted filesystem; run again, it starts exactly what is missing.
# Reads MOUNT, SERVERS, DIR, PROFILE and DURABILITY from the environment.
set -euo pipefail
calling_dir=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pando=$(scripts/build.sh)

args=(--servers "${SERVERS:-4}")
mount=${MOUNT:-./mnt}
case $mount in /*) ;; *) mount=$calling_dir/${mount#./} ;; esac
if [ ! -c /dev/fuse ]; then
    echo "This machine has no /dev/fuse (load the kernel module, or give the container the device)."
    mount=
elif [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
    echo "/dev/fuse may not be opened by you: be root, or have root do \`chmod 666 /dev/fuse\`, as is usual."
    mount=
fi
if [ -n "$mount" ]; then
    args+=(--mount "$mount")
else
    echo "The servers start all the same; use the command line (pando ls, put, get, ...) or the library instead."
fi
[ -z "${DIR:-}" ] || args+=(--dir "$DIR")
[ -z "${PROFILE:-}" ] || args+=(--profile "$PROFILE")
[ -z "${DURABILITY:-}" ] || args+=(--durability "$DURABILITY")

echo "$pando up ${args[*]}"
"$pando" up "${args[@]}"
if ! command -v pando >/dev/null; then
    echo
    echo "The program is not on your PATH yet:  export PATH=\"\$PATH:$(dirname "$pando")\""
fi
