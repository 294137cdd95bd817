# O_APPEND on two mounts: every line is there, whole, once, and each writer's in its order.

append_two=$work/append.mnt

# append_on_two TIMEOUT
append_on_two() {
    local code=0
    mkdir -p "$append_two" "$mnt/append" &&
        "$pando" --dir "$cluster" mount --timeout "$1" --publish 1 "$append_two" || return 1
    timeout 120 python3 scripts/mount/append.py "$append_two/append" "$mnt/append" || code=1
    "$pando" --dir "$cluster" umount "$append_two" || code=1
    rm -rf "$mnt/append"
    return $code
}

check "appends of two mounts, timeout 1" append_on_two 1
check "appends of two mounts, timeout 0" append_on_two 0
