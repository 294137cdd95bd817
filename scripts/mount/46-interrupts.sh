# Programs that wait for servers that are away can be interrupted and killed, and leave a sound filesystem.

interrupts() {
    local n pids=''
    for n in 0 1 2 3; do
        pids="$pids $(server_pid "$n")"
    done
    mkdir -p "$mnt/interrupts" || return 1
    # shellcheck disable=SC2086 # one word for each
    python3 scripts/mount/interrupts.py "$mnt/interrupts" $pids
    local code=$?
    # shellcheck disable=SC2086
    kill -CONT $pids
    [ "$code" = 0 ] && rm -rf "$mnt/interrupts"
}

# With all servers away: what is mounted is mounted, and can be made read-only.
mounts_while_away() {
    local n pids='' code=0
    for n in 0 1 2 3; do
        pids="$pids $(server_pid "$n")"
    done
    # shellcheck disable=SC2086
    kill -STOP $pids
    timeout 20 "$pando" --dir "$cluster" mount "$mnt" || code=1
    if [ "$(id -u)" = 0 ]; then
        timeout 20 "$pando" --dir "$cluster" mount -o remount,ro "$mnt" || code=1
        timeout 20 "$pando" --dir "$cluster" mount -o remount,rw "$mnt" || code=1
    fi
    # shellcheck disable=SC2086
    kill -CONT $pids
    [ "$code" = 0 ] && touch "$mnt/while-away" && rm "$mnt/while-away"
}

# What is not Pando's stays.
umounts_its_own() {
    unshare --mount --propagation private sh -c '
        mkdir -p "$1" && mount -t tmpfs other "$1" && touch "$1/there" || exit 1
        if "$2" --dir "$3" umount "$1" 2>"$1/said"; then echo "unmounted it"; exit 1; fi
        [ -e "$1/there" ] && grep -q "not Pando" "$1/said"
    ' sh "$work/other" "$pando" "$cluster"
}

why=$(why_not_root)
[ -n "$why" ] || why=$(why_missing unshare mount)
if [ -n "$why" ]; then
    skip "pando umount leaves what is not Pando's" "$why"
else
    check "pando umount leaves what is not Pando's" umounts_its_own
fi
check "mounting and remounting while servers are away" mounts_while_away
check "programs that wait are interrupted and killed" interrupts
check "fsck" fsck
