# Programs whose looks at names open the files: they see what others have closed, and no more than they may.

# foreseen TIMEOUT
foreseen() {
    local two=$work/foreseen.mnt code=0
    mkdir -p "$two" "$mnt/foreseen" && "$pando" --dir "$cluster" mount --timeout "$1" "$two" || return 1
    python3 scripts/mount/foreseen.py "$two/foreseen" "$mnt/foreseen" "$pando" "$cluster" || code=1
    "$pando" --dir "$cluster" umount "$two" || code=1
    rm -rf "$mnt/foreseen"
    return $code
}

check "files that are opened by the look at their names, timeout 1" foreseen 1
check "files that are opened by the look at their names, timeout 0" foreseen 0
