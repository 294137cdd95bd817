# Sizes and offsets at the end of what there can be, and more than there is room for.

huge_sizes() {
    local second=$work/sizes.mnt code=0 at
    mkdir -p "$mnt/sizes" "$second" && "$pando" --dir "$cluster" mount --timeout 0 "$second" || return 1
    for at in "$mnt" "$second"; do
        python3 scripts/mount/sizes.py "$at/sizes" || code=1
    done
    "$pando" --dir "$cluster" umount "$second" && rm -rf "$mnt/sizes" && [ "$code" -eq 0 ]
}

check "fallocate, truncate, write and copy past what there can be, or is" huge_sizes
