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
    "$pando" --dir "$cluster" dump /dumped | "$pando" --dir "$work/other" load &&
        # The mount may believe for a second what it knew of its root.
        sleep 1.2 && same "$from/dumped" "$work/other.mnt" &&
        "$pando" --dir "$work/other" fsck --data || code=1
    "$pando" --dir "$work/other" down >/dev/null || code=1
    rm -rf "$work/other" "$from/dumped"
    return $code
}

# What `same` does not look at, and `diff` cannot: names of one file, special files, extended attributes.
make_odd() {
    rm -rf "$mnt/beside" && mkdir "$mnt/beside" && echo one >"$mnt/beside/first" && ln "$mnt/beside/first" "$mnt/beside/second" &&
        ln -s nowhere "$mnt/beside/lead" && ln "$mnt/beside/lead" "$mnt/beside/another" &&
        mkfifo -m 640 "$mnt/beside/fifo" && mknod "$mnt/beside/null" c 1 3 &&
        setfattr -n user.note -v "of a file" "$mnt/beside/second" && setfattr -n user.note -v "of a directory" "$mnt/beside"
}

show_odd() { # FOLDER
    (cd "$1" && stat -c '%n %h %t:%T %F %a' -- * && getfattr -n user.note second . && [ second -ef first ] && [ "$(stat -c %i lead)" = "$(stat -c %i another)" ])
}

odd_elsewhere() {
    local code=0
    make_odd || return 1
    "$pando" --dir "$work/odd" up --servers 3 --mount "$work/odd.mnt" >/dev/null || return 1
    mkdir "$work/odd.mnt/into" && "$pando" --dir "$cluster" dump /beside | "$pando" --dir "$work/odd" load --into /into &&
        show_odd "$mnt/beside" >"$work/odd.from" && show_odd "$work/odd.mnt/into" >"$work/odd.to" && diff "$work/odd.from" "$work/odd.to" &&
        "$pando" --dir "$work/odd" fsck --data || code=1
    "$pando" --dir "$work/odd" down >/dev/null || code=1
    rm -rf "$work/odd" "$mnt/beside"
    return $code
}

check "pando dump" dumped
check "tar takes a dump apart" by_tar
check "a dump is loaded into a cluster of two servers" elsewhere
check "links, special files and attributes in a dump" odd_elsewhere
