# Names, paths and errors; two mounts at once.

names() {
    mkdir -p "$mnt/names" && python3 scripts/mount/names.py "$mnt/names" && rm -rf "$mnt/names"
}

two_mounts() {
    local second=$work/second.mnt
    mkdir -p "$second" "$mnt/two" && "$pando" --dir "$cluster" mount "$second" || return 1
    python3 scripts/mount/two_mounts.py "$mnt/two" "$second/two"
    local code=$?
    "$pando" --dir "$cluster" umount "$second" && [ "$code" -eq 0 ]
}

check "names of 255 and 256 bytes, not UTF-8, paths through files, 40 levels" names
check "two mounts: close-to-open, renames and removals seen after a second" two_mounts
check "fsck" fsck
