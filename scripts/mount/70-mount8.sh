# mount(8), fstab and remounting: by the helper mount.fuse.pando, and by mount.fuse3 without it.

# by HELPER: in mount namespaces of their own, so that nothing is installed on this machine.
by() {
    unshare --mount --propagation private scripts/mount/mount8.sh "$1" "$pando" "$cluster" "$work/mount8-$1"
}

why=$(why_not_root)
[ -n "$why" ] || why=$(why_missing unshare findmnt mount umount)
if [ -n "$why" ]; then
    skip "mount -t fuse.pando, fstab, remount" "$why"
else
    check "mount -t fuse.pando, fstab, remount: mount.fuse.pando" by own
    why=$(why_missing mount.fuse3)
    [ -n "$why" ] || [ ! -e /sbin/mount.fuse.pando ] || why="mount.fuse.pando is installed here, and is asked first"
    if [ -n "$why" ]; then
        skip "the same by mount.fuse3" "$why"
    else
        check "the same by mount.fuse3" by fuse3
    fi
fi
