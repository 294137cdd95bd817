# Written data that nobody closes: seen by another mount within seconds, and kept by SIGTERM. A kill -9 of the mount costs that much.

published_two=$work/published.mnt

# published TIMEOUT: the writer's mount publishes within a second.
published() {
    local code=0
    mkdir -p "$published_two" "$mnt/published" &&
        "$pando" --dir "$cluster" mount --timeout "$1" --publish 1 "$published_two" || return 1
    python3 scripts/mount/published.py seen "$published_two/published" "$mnt/published" || code=1
    "$pando" --dir "$cluster" umount "$published_two" || code=1
    rm -rf "$mnt/published"
    return $code
}

published_at_close_alone() {
    local code=0
    mkdir -p "$published_two" "$mnt/published" &&
        "$pando" --dir "$cluster" mount -o publish=0 "$published_two" || return 1
    python3 scripts/mount/published.py closed "$published_two/published" "$mnt/published" || code=1
    "$pando" --dir "$cluster" umount "$published_two" || code=1
    rm -rf "$mnt/published"
    return $code
}

# published_pid MOUNT: the process that serves it.
published_pid() {
    pgrep -f "^$pando .*mount.* $1( |\$)" | head -n 1
}

# published_end SIGNAL OPTION...: a program writes, and keeps open; then the mount's process ends so. Says what another mount reads.
published_end() {
    local signal=$1 writer pid code=0
    shift
    mkdir -p "$published_two" "$mnt/published" &&
        "$pando" --dir "$cluster" mount "$@" "$published_two" || return 1
    coproc WRITER { exec python3 scripts/mount/published.py write "$published_two/published"; }
    writer=$WRITER_PID
    read -r -u "${WRITER[0]}" _ || return 1
    pid=$(published_pid "$published_two")
    [ -n "$pid" ] || { echo "which process is the mount?"; return 1; }
    kill "-$signal" "$pid"
    for _ in $(seq 300); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
    [ ! -d "/proc/$pid" ] || { echo "the mount has not ended"; code=1; }
    kill -KILL "$writer"
    wait "$writer" 2>/dev/null
    if [ "$signal" = KILL ]; then
        "$pando" --dir "$cluster" umount "$published_two" 2>/dev/null || umount -l "$published_two"
    fi
    python3 scripts/mount/published.py read "$mnt/published" "$signal" || code=1
    rm -rf "$mnt/published"
    return $code
}

check "what stays open is seen, timeout 1" published 1
check "what stays open is seen, timeout 0" published 0
check "publish=0: seen at close and fsync" published_at_close_alone
check "a mount that gets SIGTERM publishes what it has, mappings too" published_end TERM
check "a mount that is killed has lost what was written last" published_end KILL --publish 1
