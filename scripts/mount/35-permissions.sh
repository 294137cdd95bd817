# Permissions, as several users: on a mount whose kernel checks, and on one with timeout 0, where the servers do.

permissions_asked() {
    local second=$work/permissions.mnt code
    mkdir -p "$second" && "$pando" --dir "$cluster" mount --timeout 0 "$second" || return 1
    python3 scripts/mount/permissions.py "$second" servers
    code=$?
    "$pando" --dir "$cluster" umount "$second" && [ "$code" -eq 0 ]
}

if [ "$(id -u)" != 0 ]; then
    skip "permissions" "other users are played by root"
else
    check "permissions: refused by the kernel" python3 scripts/mount/permissions.py "$mnt" kernel
    check "permissions: refused by servers, timeout 0" permissions_asked
fi
