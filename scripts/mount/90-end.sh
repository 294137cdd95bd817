# Everything removed, nothing left; everything stopped.

remove_all() {
    local left
    find "$mnt" -mindepth 1 -maxdepth 1 -exec rm -rf {} + || return 1
    left=$(find "$mnt" -mindepth 1) && [ -z "$left" ] || { echo "left:"; head <<<"$left"; return 1; }
    [ "$(stat -c '%h' "$mnt")" = 2 ] || { echo "the root has $(stat -c '%h' "$mnt") links"; return 1; }
    df "$mnt"
    # Where a server was started again just before, all that was open stays until mounts have said what they have; and for a minute what
    # a mount had open that was killed.
    for _ in $(seq 100); do
        fsck | tee "$work/fsck.out"
        [ "${PIPESTATUS[0]}" -eq 0 ] || return 1
        ! grep -q '^1 director[a-z]*, 0 files, 0 bytes' "$work/fsck.out" || break
        sleep 1
    done
    grep -q '^1 director[a-z]*, 0 files, 0 bytes' "$work/fsck.out" || return 1
    # Blocks go with their files, soon. Beside their folders there is the mark that says whose they are.
    for _ in $(seq 50); do
        left=$(find "$cluster/blocks" -mindepth 2 -type f | wc -l)
        [ "$left" -ne 0 ] || return 0
        sleep 0.1
    done
    echo "$left blocks are left of removed files"
    return 1
}

mount_again() {
    echo there >"$mnt/there" && "$pando" --dir "$cluster" umount "$mnt" && [ ! -e "$mnt/there" ] &&
        "$pando" --dir "$cluster" up --mount "$mnt" >/dev/null && [ "$(cat "$mnt/there")" = there ] && rm "$mnt/there"
}

check "rm -rf of everything leaves nothing" remove_all
check "unmounted and mounted again" mount_again
check "pando down leaves nothing running" stop_cluster
