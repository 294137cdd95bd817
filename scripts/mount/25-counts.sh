# What everyday programs cost for each file: operations of servers, wake-ups of the mount's threads and, where strace works, their
# system calls. Nothing here depends on how fast the machine is.

counts_at=$work/counts.mnt

# counts TIMEOUT KIND: on a mount that nobody else uses. KIND is `operations` or `calls`.
counts() {
    local code=0 pid
    mkdir -p "$counts_at" "$mnt/counts" && "$pando" --dir "$cluster" mount --timeout "$1" -o noatime "$counts_at" || return 1
    pid=$(pgrep -f "^$pando .*mount.* $counts_at( |\$)" | head -n 1)
    if [ -n "$pid" ]; then
        python3 scripts/mount/counts.py "$2" "$1" "$counts_at/counts" "$pid" "$pando" "$cluster" "$work" || code=1
    else
        echo "which process is the mount?"
        code=1
    fi
    "$pando" --dir "$cluster" umount "$counts_at" || code=1
    rm -rf "$mnt/counts"
    return $code
}

# why_no_strace: prints why system calls of another process cannot be counted here.
why_no_strace() {
    command -v strace >/dev/null || { echo "there is no strace"; return; }
    local out
    sleep 5 &
    out=$(timeout 1 strace -f -c -p $! 2>&1)
    kill $! && wait $! 2>/dev/null
    ! grep -q "ptrace\|Operation not permitted" <<<"$out" || echo "strace may not look: $(head -n 1 <<<"$out")"
}

check "operations and wake-ups for each file, timeout 1" counts 1 operations
check "operations and wake-ups for each file, timeout 0" counts 0 operations
counts_why=$(why_no_strace)
if [ -n "$counts_why" ]; then
    skip "system calls for each file" "$counts_why"
else
    check "system calls for each file, timeout 1" counts 1 calls
fi
