# After the pieces before: their sessions take a minute to end. It passes while programs lock files
# (48-locks.sh).

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

check "what had no name has gone" no_orphans
check "fsck" fsck
