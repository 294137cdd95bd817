#!/bin/bash
# `make posix`: the published POSIX suite pjdfstest on a mount of its own, started and taken down here.
#
#   scripts/posix.sh [PATTERN]           all cases, or those whose names contain PATTERN
#   scripts/posix.sh --kills [PATTERN]   the same while servers are killed and started again, one after the other
#   TIMEOUT=0 scripts/posix.sh           on a mount that believes nothing, where the servers refuse and not the kernel
#   PROFILE=indexfs scripts/posix.sh     of another profile (SPLIT_ENTRIES=N, WITHOUT=deferral: its options)
#
# Needs root: the suite changes users, and remounts read-only (for that the helper of mount(8) is put in place if there is
# none, and taken away again). Installs what the suite needs: two Debian packages, the suite itself, a second user.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --test || exit 1
source scripts/env.sh
source scripts/mount/lib.sh

version=0.2.2 # of pjdfstest
suite=$PANDO_CACHE/tools/pjdfstest-$version/bin/pjdfstest
helper=/sbin/mount.fuse.pando
made_helper=no

kills=no killer=
if [ "${1:-}" = --kills ]; then
    kills=yes
    shift
fi
if [ "$(id -u)" != 0 ]; then
    echo "the suite acts as several users: run it as root" >&2
    exit 2
fi

# Where every user comes, by a short way: a socket's path has 108 bytes.
place=$(mktemp -d) || exit 1
stage_failed=0

end() {
    [ -z "$killer" ] || kill "$killer" 2>/dev/null
    [ -z "$killer" ] || wait "$killer"
    "$pando" --dir "$work/posix" umount "$mnt" >/dev/null 2>&1
    "$pando" --dir "$work/posix" down >/dev/null 2>&1
    mountpoint -q "$place/s" && umount "$place/s"
    rmdir "$place"/* "$place"
    [ "$made_helper" = no ] || rm -f "$helper"
    take_down
}

install_suite() {
    [ -x "$suite" ] && return
    dpkg -s libacl1-dev acl >/dev/null 2>&1 || apt-get install -y -q libacl1-dev acl || return 1
    cargo install --quiet pjdfstest --version "$version" --locked --root "${suite%/bin/*}"
}

if ! install_suite || ! build_pando || ! make_work; then
    exit 1
fi
trap end EXIT
trap 'exit 130' INT TERM HUP
id pandotests >/dev/null 2>&1 || useradd --no-create-home --shell /usr/sbin/nologin pandotests || exit 1
cluster=$work/posix mnt=$place/m
chmod 755 "$place" && mkdir "$mnt" "$place/s" && mount -t tmpfs none "$place/s" || exit 1
"$pando" --dir "$cluster" up --servers 4 ${PROFILE:+--profile "$PROFILE"} ${WITHOUT:+--without "$WITHOUT"} \
    ${SPLIT_ENTRIES:+--split-entries "$SPLIT_ENTRIES"} >/dev/null || exit 1
"$pando" --dir "$cluster" mount --timeout "${TIMEOUT:-1}" "$mnt" >/dev/null || exit 1
if [ ! -e "$helper" ]; then
    ln -s "$pando" "$helper" && made_helper=yes
fi
nobody=$(id -gn nobody)
cat >"$work/suite.toml" <<CONFIGURATION
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
# Longer than a server's clock needs to show another time.
naptime = 0.02
allow_remount = true

[dummy_auth]
entries = [["nobody", "$nobody"], ["pandotests", "pandotests"]]
CONFIGURATION
chmod 777 "$mnt"
# Cases of read-only mounts change the mount under all others: they come by themselves.
code=0
"$suite" -c "$work/suite.toml" -p "$mnt" -s "$place/s" erofs || code=1
if [ $kills = yes ]; then
    (
        trap 'exit 0' TERM
        for ((n = 0; ; n++)); do
            sleep 2
            kill -9 "$(server_pid $((n % 4)))"
            sleep 0.2
            "$pando" --dir "$cluster" up >/dev/null && echo "server $((n % 4)) was killed and started"
        done
    ) &
    killer=$!
fi
sed -i 's/allow_remount = true/allow_remount = false/' "$work/suite.toml"
"$suite" -c "$work/suite.toml" -p "$mnt" -s "$place/s" "$@" || code=1
if [ -n "$killer" ]; then
    kill "$killer"
    wait "$killer"
    killer=
    "$pando" --dir "$cluster" up >/dev/null || code=1
fi
"$pando" --dir "$cluster" fsck --data || code=1
exit $code
