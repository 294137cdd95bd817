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

# What was open and has no name goes within a short time of its end.
no_orphans() {
    local i
    for ((i = 0; i < 200; i++)); do
        "$pando" --dir "$cluster" fsck --json >"$work/fsck.json" || { cat "$work/fsck.json"; return 1; }
        python3 -c 'import json,sys; sys.exit(json.load(open(sys.argv[1]))["open_without_name"] != 0)' "$work/fsck.json" && return 0
        sleep 0.5
    done
    echo "after $i looks files without a name are still there"
    return 1
}

check "files that another mount renames, replaces, links, removes" open_files plain
check "the same while servers are killed" open_over_kills
check "what had no name has gone" no_orphans
check "fsck" fsck
