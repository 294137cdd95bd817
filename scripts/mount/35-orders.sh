# Two things wrong at a time: the error is the one that Linux reports first.

orders() { # REASON: `checks` (the kernel) or `asked` (the servers; timeout 0)
    local at=$mnt/orders second=$work/orders.mnt reference code options=()
    if [ "$1" = asked ]; then
        mkdir -p "$second" && "$pando" --dir "$cluster" mount --timeout 0 "$second" || return 1
        at=$second/orders
        options=(asked)
    fi
    reference=$(mktemp -d /dev/shm/orders-XXXXXX) && chmod 711 "$work" "$reference" || return 1
    python3 scripts/mount/orders.py "$reference/tree" "$at" "${options[@]}"
    code=$?
    rm -rf "$reference"
    [ "$1" != asked ] || "$pando" --dir "$cluster" umount "$second" || return 1
    return "$code"
}

why=$(why_not_root)
[ -n "$why" ] || [ "$(stat -f -c %T /dev/shm)" = tmpfs ] || why="/dev/shm is no tmpfs"
if [ -n "$why" ]; then
    skip "order of errors" "$why"
else
    check "order of errors: the kernel checks" orders checks
    check "order of errors: the servers check, timeout 0" orders asked
fi
