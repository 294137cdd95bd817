# A device that stores and blocks share, filled in every way: the server goes on, what is there can be removed, and space comes back by itself.

device_free() {
    df --output=avail -B1M "$1" | tail -n 1 | tr -d ' '
}

# device_until FOLDER MIB: waits until so much is free.
device_until() {
    for _ in $(seq 150); do
        [ "$(device_free "$1")" -lt "$2" ] || return 0
        sleep 0.2
    done
    echo "after 30 s $(device_free "$1") MiB are free, and not $2"
    return 1
}

# device_goes_on MOUNT: attributes change, names go.
device_goes_on() {
    local n
    for n in $(seq 200); do
        chmod "6$((n % 8))0" "$1/here" && touch -d "2020-01-01 00:00:$((n % 60))" "$1/here" || return 1
    done
}

# device_filled MOUNT DEVICE: the ways of filling it.
device_filled() {
    local mnt=$1 device=$2 free n=0 made
    echo here >"$mnt/here" && mkdir "$mnt/many" || return 1
    free=$(($(device_free "$device") - 40))
    # One large file: what was stored of it stays, as on a disk.
    dd if=/dev/urandom of="$mnt/large" bs=1M count=400 2>/dev/null && { echo "400 MiB fit into 256"; return 1; }
    [ "$(stat -c %s "$mnt/large")" -gt 1000000 ] || { echo "nothing is left of a large file"; return 1; }
    device_goes_on "$mnt" && rm "$mnt/large" && device_until "$device" "$free" || return 1
    # Several at once, by one writer each.
    for n in 1 2 3 4; do
        dd if=/dev/urandom of="$mnt/large$n" bs=1M count=100 2>/dev/null &
    done
    wait
    device_goes_on "$mnt" && rm "$mnt"/large? && device_until "$device" "$free" || return 1
    # One that is appended to.
    dd if=/dev/urandom of="$mnt/log" bs=64k count=6400 oflag=append conv=notrunc 2>/dev/null && { echo "400 MiB of a log fit into 256"; return 1; }
    device_goes_on "$mnt" && truncate -s 0 "$mnt/log" && rm "$mnt/log" && device_until "$device" "$free" || return 1
    # By somebody else.
    dd if=/dev/zero of="$device/filler" bs=1M 2>/dev/null
    made=$(touch "$mnt/new" 2>&1) && { echo "a file was made where nothing is free"; return 1; }
    [[ $made == *"No space left"* ]] || { echo "$made"; return 1; }
    device_goes_on "$mnt" && rm "$device/filler" && sleep 1 && touch "$mnt/new" && rm "$mnt/new" || return 1
    # Files that are kept with their names: what they take comes back when the store is compacted, which it sees to.
    n=0
    head -c 30000 /dev/urandom >"$work/device.data"
    while cp "$work/device.data" "$mnt/many/$n" 2>/dev/null; do n=$((n + 1)); done
    [ $n -gt 1000 ] || { echo "no more than $n small files fit"; return 1; }
    echo "$n small files, $(device_free "$device") MiB free"
    device_goes_on "$mnt" && rm -rf "$mnt/many" && device_goes_on "$mnt" && device_until "$device" "$free" && rm "$mnt/here" || return 1
    echo "$(device_free "$device") MiB are free again"
}

device_shared() {
    local device=$work/device code=0
    mkdir -p "$device" "$work/device.mnt" && mount -t tmpfs -o size=256m tmpfs "$device" || return 1
    "$pando" --dir "$device/c" up --servers 1 --mount "$work/device.mnt" >/dev/null || code=1
    [ $code -ne 0 ] || device_filled "$work/device.mnt" "$device" || code=1
    "$pando" --dir "$device/c" status | tail -n 3
    "$pando" --dir "$device/c" fsck || code=1
    ! grep -i "stopped after a failed write" "$device"/c/run/server-0.log || code=1
    [ $code -eq 0 ] || tail -n 5 "$device"/c/run/server-0.log
    "$pando" --dir "$device/c" down >/dev/null || code=1
    umount "$device" || umount -l "$device"
    return $code
}

if [ -n "$(why_not_root)" ]; then
    skip "a device that stores and blocks share is full" "$(why_not_root)"
else
    check "a device that stores and blocks share is full" device_shared
fi
