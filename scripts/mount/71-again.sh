# Unmounting and mounting the same place again: nobody has to wait between the two.

check "umount, then mount, at once, 30 times; and what else comes between" \
    python3 scripts/mount/again.py "$work/again.mnt" "$pando" --dir "$cluster"
