#!/bin/bash
# `make install`: the program for everybody on this machine, and the helper by which mount(8) and fstab mount.
# Reads PREFIX (default /usr/local) and DESTDIR from the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pando=$(scripts/build.sh)
bin=${PREFIX:-/usr/local}/bin
install -D -m 755 "$pando" "${DESTDIR:-}$bin/pando"
# mount(8) looks for its helpers nowhere else.
mkdir -p "${DESTDIR:-}/sbin"
ln -sfn "$bin/pando" "${DESTDIR:-}/sbin/mount.fuse.pando"
echo "installed $bin/pando and /sbin/mount.fuse.pando${DESTDIR:+ in $DESTDIR}"
