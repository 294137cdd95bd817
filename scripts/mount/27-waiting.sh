# Attributes that a program sets on a file while it makes it: shown here at once, to others with the bytes or within the timeout.

waiting() {
    local two=$work/waiting.mnt code=0
    mkdir -p "$two" "$mnt/waiting" && "$pando" --dir "$cluster" mount --timeout 0 "$two" || return 1
    python3 scripts/mount/waiting.py "$mnt/waiting" "$two/waiting" || code=1
    "$pando" --dir "$cluster" umount "$two" || code=1
    rm -rf "$mnt/waiting"
    return $code
}

# What waits is told by a mount that is ended, and by one that is unmounted.
waiting_ends() {
    local two=$work/waiting.mnt pid writer code=0
    mkdir -p "$two" "$mnt/waiting" && "$pando" --dir "$cluster" mount "$two" || return 1
    coproc WRITER { exec python3 scripts/mount/waiting.py write "$two/waiting/f"; }
    writer=$WRITER_PID
    read -r -u "${WRITER[0]}" _ || return 1
    pid=$(pgrep -f "^$pando .*mount.* $two( |\$)" | head -n 1)
    kill -TERM "$pid"
    for _ in $(seq 300); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
    [ ! -d "/proc/$pid" ] || { echo "the mount has not ended"; code=1; }
    kill -KILL "$writer"
    wait "$writer" 2>/dev/null
    [ "$(stat -c '%a %Y' "$mnt/waiting/f")" = "644 1500000000" ] || { stat "$mnt/waiting/f"; code=1; }
    rm -rf "$mnt/waiting"
    return $code
}

check "attributes of files that are being made" waiting
check "a mount that gets SIGTERM tells them" waiting_ends
