# Locks of programs on two mounts. LOCKS_SECONDS: how long two writers share a database (60).

locks_two=$work/locks.mnt

locks_begin() {
    mkdir -p "$locks_two" "$mnt/locks" && "$pando" --dir "$cluster" mount "$locks_two"
}

lock_rules() {
    python3 scripts/mount/locks.py "$mnt/locks" "$locks_two/locks"
}

# both COMMAND FILE SECONDS [NAME]: on both mounts at once; prints the sum of what they say.
on_both() {
    local a b
    python3 scripts/mount/locks.py "$1" "$mnt/locks/$2" "$3" ${4:+one} >"$work/locks-a.out" 2>&1 &
    a=$!
    python3 scripts/mount/locks.py "$1" "$locks_two/locks/$2" "$3" ${4:+two} >"$work/locks-b.out" 2>&1 &
    b=$!
    wait "$a" || { cat "$work/locks-a.out" >&2; wait "$b"; return 1; }
    wait "$b" || { cat "$work/locks-b.out" >&2; return 1; }
    echo $(($(cat "$work/locks-a.out") + $(cat "$work/locks-b.out")))
}

lock_counts() {
    local told counted
    told=$(on_both count counter 15) && counted=$(cat "$mnt/locks/counter") || return 1
    echo "$counted counted, $told told"
    [ "$told" = "$counted" ] && [ "$told" -gt 20 ]
}

lock_database() {
    local done
    python3 scripts/mount/locks.py prepare "$mnt/locks/db" || return 1
    done=$(on_both sqlite db "${LOCKS_SECONDS:-60}" names) || return 1
    echo "$done transactions in ${LOCKS_SECONDS:-60} s"
    [ "$done" -gt 50 ] && python3 scripts/mount/locks.py verify "$locks_two/locks/db" "$done" &&
        python3 scripts/mount/locks.py verify "$mnt/locks/db" "$done"
}

lock_database_ended() {
    local code=0
    wait "$locks_database" || code=$?
    cat "$work/locks-database.out"
    return $code
}

# A lock that is held over the restart of all servers, and one by one, is held, and seen; then it is given up.
lock_restart() {
    local code=0 holder
    coproc HOLD { python3 scripts/mount/locks.py hold posix ex "$mnt/locks/kept" 10 20; }
    holder=$HOLD_PID
    read -r -u "${HOLD[0]}" _ || return 1
    for n in 0 1 2 3; do kill_server $n; done
    "$pando" --dir "$cluster" up >/dev/null || code=1
    [ "$(python3 scripts/mount/locks.py try posix sh "$locks_two/locks/kept" 29 1)" = EAGAIN ] || code=1
    "$pando" --dir "$cluster" locks || code=1
    [ "$("$pando" --dir "$cluster" locks --json | grep -c '"family":"posix"')" -ge 1 ] || code=1
    [ "$(python3 scripts/mount/locks.py try posix ex "$locks_two/locks/kept" 30 1)" = held ] || code=1
    "$pando" --dir "$cluster" restart >/dev/null || code=1
    [ "$(python3 scripts/mount/locks.py try posix sh "$locks_two/locks/kept" 29 1)" = EAGAIN ] || code=1
    exec {HOLD[1]}>&-
    wait "$holder" || code=1
    [ "$(python3 scripts/mount/locks.py try posix ex "$locks_two/locks/kept" 0 0)" = held ] || code=1
    return $code
}

# mount_pid MOUNT: the process that serves it.
mount_pid() {
    pgrep -f "^$pando .*mount.* $1( |\$)" | head -n 1
}

# A mount that is killed has its locks for a minute. One that is frozen as long has lost them then, and its programs are told.
lock_lost() {
    local killed=$work/locks.killed.mnt frozen=$work/locks.frozen.mnt dead cold late code=0 began=$SECONDS said at
    mkdir -p "$killed" "$frozen" && mkfifo "$work/locks.fifo" || return 1
    "$pando" --dir "$cluster" mount "$killed" && "$pando" --dir "$cluster" mount "$frozen" || return 1
    python3 scripts/mount/locks.py hold flock ex "$killed/locks/killed" <"$work/locks.fifo" >"$work/locks-killed.out" 2>&1 &
    local holder=$!
    python3 scripts/mount/locks.py late "$frozen/locks/frozen" <"$work/locks.fifo" >"$work/locks-late.out" 2>&1 &
    late=$!
    exec 9>"$work/locks.fifo"
    for at in killed late; do
        until grep -q held "$work/locks-$at.out"; do sleep 0.1; done
    done
    dead=$(mount_pid "$killed") cold=$(mount_pid "$frozen")
    [ -n "$dead" ] && [ -n "$cold" ] || { echo "which processes are the mounts?"; return 1; }
    kill -KILL "$dead"
    kill -STOP "$cold"
    began=$SECONDS
    [ "$(python3 scripts/mount/locks.py try flock ex "$mnt/locks/killed")" = EAGAIN ] || { echo "gone at once"; code=1; }
    timeout 90 python3 scripts/mount/locks.py hold flock ex "$mnt/locks/killed" </dev/null || code=1
    timeout 30 python3 scripts/mount/locks.py hold posix ex "$mnt/locks/frozen" </dev/null || code=1
    echo "free after $((SECONDS - began)) s"
    [ $((SECONDS - began)) -ge 50 ] || code=1
    kill -CONT "$cold"
    sleep 3
    kill -KILL "$holder"
    echo >&9
    exec 9>&-
    wait "$late" || code=1
    said=$(tail -n 1 "$work/locks-late.out")
    echo "the frozen one's program: $said"
    [ "$said" = "EIO EIO ENOLCK done done" ] || code=1
    "$pando" --dir "$cluster" umount "$frozen" || code=1
    "$pando" --dir "$cluster" umount "$killed" 2>/dev/null || umount -l "$killed" 2>/dev/null || fusermount3 -uz "$killed"
    rm -f "$work/locks.fifo"
    return $code
}

if locks_begin; then
    check "two mounts: flock and fcntl, ranges, waiting, signals, deadlock, what a holder sees" lock_rules
    check "two mounts count under a lock" lock_counts
    check "locks are kept over a restart of all servers that were killed" lock_restart
    # A minute each, and most of it is waiting.
    lock_database >"$work/locks-database.out" 2>&1 &
    locks_database=$!
    check "a mount that is killed, and one that is frozen, lose their locks after a minute" lock_lost
    check "sqlite3: two writers on two mounts, meanwhile" lock_database_ended
    check "the second mount ends" "$pando" --dir "$cluster" umount "$locks_two"
    rm -rf "$mnt/locks"
    check "fsck" fsck
else
    check "a second mount" false
fi
