#!/bin/bash
# `make posix`: the published POSIX suite pjdfstest on a mount of its own, started and taken down here.
#
#   scripts/posix.sh [PATTERN]   all cases, or those whose names contain PATTERN
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

if [ "$(id -u)" != 0 ]; then
    echo "the suite acts as several users: run it as root" >&2
    exit 2
fi

end() {
    mountpoint -q "$work/second" && umount "$work/second"
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
start_cluster posix || exit 1
mkdir "$work/second" && mount -t tmpfs none "$work/second" || exit 1
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
chmod 777 "$mnt" "$work" && chmod a+x "$PANDO_CACHE" "$PANDO_CACHE/mount-test"
# Cases of read-only mounts change the mount under all others: they come by themselves.
code=0
"$suite" -c "$work/suite.toml" -p "$mnt" -s "$work/second" erofs || code=1
sed -i 's/allow_remount = true/allow_remount = false/' "$work/suite.toml"
"$suite" -c "$work/suite.toml" -p "$mnt" -s "$work/second" "$@" || code=1
"$pando" --dir "$cluster" fsck --data || code=1
exit $code
