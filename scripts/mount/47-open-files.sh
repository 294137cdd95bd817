# Files that one mount has open while another renames them away, replaces their names, links and removes them (H97).

open_files() {
    local second=$work/second.mnt code
    mkdir -p "$second" && "$pando" --dir "$cluster" mount "$second" || return 1
    python3 scripts/mount/open_files.py "$mnt" "$second" "$1"
    code=$?
    "$pando" umount "$second" || code=1
    return "$code"
}

# Servers are killed and started again while files are open that another mount has removed.
open_over_kills() {
    local second=$work/second.mnt stop=$work/open.stop code i
    rm -f "$stop"
    mkdir -p "$second" && "$pando" --dir "$cluster" mount "$second" || return 1
    python3 scripts/mount/open_files.py "$mnt" "$second" kills "$stop" >"$work/open.out" 2>&1 &
    local user=$!
    for ((i = 0; i < 4; i++)); do
        sleep 1
        kill_server "$i" && "$pando" --dir "$cluster" up >"$work/up.out" 2>&1 || { cat "$work/up.out"; break; }
    done
    touch "$stop"
    wait "$user"
    code=$?
    cat "$work/open.out"
    "$pando" umount "$second" || code=1
    return "$code"
}

check "files that another mount renames, replaces, links, removes" open_files plain
check "the same while servers are killed" open_over_kills
check "fsck" fsck
