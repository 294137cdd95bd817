# All servers are restarted one after the other while a program writes and another copies: neither sees an error.

under_restart() {
    local writer copier
    rm -rf "$mnt/restarted" "$work/restart.stop" && mkdir "$mnt/restarted" || return 1
    python3 scripts/mount/writer.py "$mnt/restarted/log" "$work/restart.stop" >"$work/writer.out" 2>&1 &
    writer=$!
    (
        n=0
        while [ ! -e "$work/restart.stop" ]; do
            cp -a "$tree/odd" "$mnt/restarted/$n" && rm -rf "$mnt/restarted/$((n - 1))" || exit 1
            n=$((n + 1))
        done
    ) >"$work/copier.out" 2>&1 &
    copier=$!
    "$pando" --dir "$cluster" restart && "$pando" --dir "$cluster" restart
    local code=$?
    touch "$work/restart.stop"
    wait "$writer" || { cat "$work/writer.out"; code=1; }
    wait "$copier" || { cat "$work/copier.out"; code=1; }
    cat "$work/writer.out"
    [ "$code" = 0 ] && rm -rf "$mnt/restarted"
}

check "pando restart while programs write and copy" under_restart
check "fsck" fsck
