# Data of large files: what is in use is never taken for what a crash has left.

gc_beside_writers() {
    mkdir -p "$mnt/data" && python3 scripts/mount/data.py "$mnt/data" "$pando" --dir "$cluster" && rm -rf "$mnt/data"
}

check "gc leaves alone what is open, unpublished or without a name" gc_beside_writers
