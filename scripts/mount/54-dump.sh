# A tree on the mount is dumped, taken apart by tar, and loaded into another cluster with another number of servers.

dumped() {
    local some
    rm -rf "$mnt/dumped" "$work/dump.tar" && mkdir "$mnt/dumped" && cp -a "$tree/odd" "$mnt/dumped/odd" || return 1
    some=$(find "$tree/crates" -mindepth 1 -maxdepth 1 | LC_ALL=C sort | head -n 1)
    [ -z "$some" ] || cp -a "$some" "$mnt/dumped/" || return 1
    sync -f "$mnt" && "$pando" --dir "$cluster" dump -o "$work/dump.tar" /dumped
}

by_tar() {
    mkdir "$work/untar" && tar -C "$work/untar" -xpf "$work/dump.tar" && same "$mnt/dumped" "$work/untar" && rm -rf "$work/untar"
}

elsewhere() {
    local from=$mnt code=0
    "$pando" --dir "$work/other" up --servers 2 --mount "$work/other.mnt" >/dev/null || return 1
    "$pando" --dir "$cluster" dump /dumped | "$pando" --dir "$work/other" load && same "$from/dumped" "$work/other.mnt" &&
        "$pando" --dir "$work/other" fsck --data || code=1
    "$pando" --dir "$work/other" down >/dev/null || code=1
    rm -rf "$work/other" "$from/dumped"
    return $code
}

check "pando dump" dumped
check "tar takes a dump apart" by_tar
check "a dump is loaded into a cluster of two servers" elsewhere
