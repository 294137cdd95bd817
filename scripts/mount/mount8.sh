#!/bin/bash
# mount8.sh own|fuse3 PROGRAM CLUSTER FOLDER: what mount(8) makes of a running cluster. Runs in a mount namespace of its own:
# `own` puts mount.fuse.pando into /sbin there, `fuse3` only the program into /usr/local/bin: mount(8) passes no PATH on.
set -uo pipefail
how=$1 pando=$2 cluster=$3 work=$4
mkdir -p "$work/a" "$work/b" "$work/bin" || exit 1
a=$work/a b=$work/b

fail() {
    echo "$*"
    findmnt -t fuse.pando
    cat "$work/said" 2>/dev/null
    exit 1
}

# expect CODE COMMAND...: what it says is kept in $work/said.
expect() {
    local wanted=$1 code
    shift
    "$@" >"$work/said" 2>&1
    code=$?
    [ "$code" = "$wanted" ] || fail "$*: exit code $code, not $wanted"
}

says() {
    grep -q -- "$1" "$work/said" || fail "the message does not say: $1"
}

# has DIR OPTION: whether the mount there shows it.
has() {
    case ,$(findmnt -n -o OPTIONS --mountpoint "$1"), in *,"$2",*) ;; *) return 1 ;; esac
}

# is_safe DIR: no devices, no set-id bits; mount.fuse3 says suid and dev for whoever does not say otherwise.
is_safe() {
    [ "$how" = fuse3 ] || { has "$1" nosuid && has "$1" nodev; }
}

mounted() {
    [ "$(findmnt -n -o FSTYPE --mountpoint "$1")" = fuse.pando ]
}

gone() {
    ! mounted "$1" || fail "$1 is still mounted"
}

trap 'umount -l "$a" "$b" 2>/dev/null' EXIT
# over DIR: what is in $work/bin is in this system folder, too.
over() {
    local dir
    dir=$(readlink -f "$1")
    mount -t overlay overlay -o "lowerdir=$work/bin:$dir" "$dir" || fail "no overlay over $dir"
}

if [ "$how" = own ]; then
    ln -s "$pando" "$work/bin/mount.fuse.pando"
    over /sbin
else
    [ ! -e /sbin/mount.fuse.pando ] || { echo "mount.fuse.pando is installed: mount.fuse3 would not be asked"; exit 1; }
    ln -s "$pando" "$work/bin/pando"
    over /usr/local/bin
fi

# It is there when mount returns.
expect 0 mount -t fuse.pando "$cluster" "$a"
mounted "$a" || fail "not mounted"
[ "$(findmnt -n -o SOURCE --mountpoint "$a")" = "$cluster" ] || fail "another source"
has "$a" rw && is_safe "$a" || fail "options are not the usual ones"
echo one >"$a/mount8" || fail "cannot write"

# Remounting.
expect 0 mount -o remount,ro "$a"
has "$a" ro && is_safe "$a" || fail "not read-only, or something was lost"
! touch "$a/mount8" 2>"$work/said" || fail "changed what is read-only"
says "Read-only"
[ "$(cat "$a/mount8")" = one ] || fail "cannot read what is read-only"
expect 0 mount -o remount,rw,noexec "$a"
has "$a" noexec && touch "$a/mount8" || fail "not for changes again"
exec 7>>"$a/mount8"
expect 32 mount -o remount,ro "$a"
says "open for writing"
has "$a" rw || fail "read-only all the same"
exec 7>&-
expect 0 mount -o remount,ro "$a"
expect 0 mount -o remount,rw "$a"
expect 32 mount -o remount,timeout=7 "$a"
says "cannot change"

# Twice, and what is wrong.
expect 32 mount -t fuse.pando "$cluster" "$a"
says "already"
expect 32 mount -t fuse.pando "$work/none" "$b"
says "there is no cluster"
expect 32 mount -t fuse.pando "$cluster" "$work/none"
says "not exist"
expect 1 mount -t fuse.pando -o alow_other "$cluster" "$b"
says "alow_other"
gone "$b"
[ "$how" != own ] || { expect 0 mount -f -t fuse.pando "$cluster" "$b"; gone "$b"; }

# The process behind a mount dies: mounting again is all that is needed.
pid=$(cat "$cluster/run/mount-$(sed 's,[^A-Za-z0-9./],%2d,g; s,/,_,g' <<<"$a").lock") || fail "no lock of the mount"
[ "$(readlink "/proc/$pid/exe")" = "$pando" ] && kill -KILL "$pid" || fail "process $pid is not the mount"
for _ in $(seq 100); do
    ! stat "$a/mount8" >/dev/null 2>&1 && break
    sleep 0.1
done
expect 0 mount -t fuse.pando -o ro "$cluster" "$a"
[ "$(cat "$a/mount8")" = one ] && has "$a" ro || fail "not mounted again"
expect 0 umount "$a"
gone "$a"

# fstab.
cat >"$work/fstab" <<END
$cluster $a fuse.pando rw,_netdev,nofail,noexec,timeout=0,x-systemd.automount,x-what=ever 0 0
$cluster $b fuse.pando defaults,noauto,ro,allow_other 0 0
END
expect 0 mount -T "$work/fstab" -a
mounted "$a" && has "$a" noexec || fail "fstab's line was not mounted"
gone "$b"
expect 0 mount -T "$work/fstab" -a
[ "$(findmnt -n --mountpoint "$a" | wc -l)" = 1 ] || fail "mounted twice"
expect 0 mount -T "$work/fstab" "$b"
mounted "$b" && has "$b" ro || fail "a line with noauto was not mounted"
expect 0 mount -T "$work/fstab" -o remount,ro "$a"
has "$a" ro && has "$b" ro || fail "not read-only"
expect 0 mount -T "$work/fstab" -o remount,rw "$a"
[ "$(cat "$b/mount8")" = one ] && rm "$a/mount8" || fail "the two differ"
expect 0 umount "$a" "$b"
gone "$a"
gone "$b"

# Nothing is left running.
for _ in $(seq 100); do
    left=$(grep -l "mount8-$how" /proc/[0-9]*/cmdline 2>/dev/null | grep -v -e /self/ -e "/$$/" | xargs -r -n 1 dirname | xargs -r -n 1 basename)
    running=
    for pid in $left; do
        [ "$(readlink "/proc/$pid/exe")" = "$pando" ] && running=$pid
    done
    [ -n "$running" ] || exit 0
    sleep 0.1
done
fail "process $running still runs"
