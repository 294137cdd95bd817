# fsx: random operations on one file, each read verified.
# By default a few seeds; FSX_SEEDS=all: 10 of 20,000 operations at 12 MiB, 10 around the inline limit, 3 around a small one.

fsx=$PANDO_CACHE/tools/bin/fsx
fsx_operations=8000
[ "${FSX_SEEDS:-}" != all ] || fsx_operations=20000
install_fsx() {
    [ -x "$fsx" ] && [ "$("$fsx" --version)" = "fsx 0.3.2" ] ||
        cargo install fsx --version 0.3.2 --locked --quiet --root "$PANDO_CACHE/tools" --target-dir "$PANDO_CACHE/tools/target"
}

# fsx_config FLEN OPMAX: all weights.
fsx_config() {
    cat <<END
flen = $1
[opsize]
max = $2
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 10
fsync = 1
fdatasync = 1
posix_fallocate = 5
punch_hole = 5
sendfile = 5
posix_fadvise = 1
copy_file_range = 5
END
}

# fsx_seed SEED FLEN OPMAX FOLDER
fsx_seed() {
    local out=$work/fsx-$2-$1
    mkdir -p "$out" && fsx_config "$2" "$3" >"$out/config.toml" || return 1
    if "$fsx" -q -N $fsx_operations -S "$1" -f "$out/config.toml" -P "$out" "$4/fsx-$2-$1" >"$out/log" 2>&1; then
        rm -rf "$out" "$4/fsx-$2-$1"
    else
        tail -n 25 "$out/log"
        return 1
    fi
}

# fsx_fails_by_itself SEED FLEN OPMAX: also on the local disk. Some seeds draw posix_fallocate of 0 bytes, which every
# kernel refuses and this version does not expect.
fsx_fails_by_itself() {
    mkdir -p "$work/local" && ! fsx_seed "$1" "$2" "$3" "$work/local" >/dev/null
}

# On a mount that publishes in the background all the time.
fsx_mnt=$work/fsx.mnt
fsx_mount() {
    mkdir -p "$fsx_mnt" && "$pando" --dir "$cluster" mount --publish 1 "$fsx_mnt"
}

# fsx_seeds COUNT FLEN OPMAX: that many seeds, on a file each, side by side: each alone mostly waits for its servers.
fsx_seeds() {
    local seed=0 seeds=() runs=() i
    while [ ${#seeds[@]} -lt "$1" ]; do
        seed=$((seed + 1))
        if fsx_fails_by_itself "$seed" "$2" "$3"; then
            echo "fsx, seed $seed, $2 bytes: fails on the local disk too, the next seed takes its place"
        else
            seeds+=("$seed")
        fi
    done
    for seed in "${seeds[@]}"; do
        fsx_seed "$seed" "$2" "$3" "$fsx_mnt" &
        runs+=($!)
    done
    for i in "${!seeds[@]}"; do
        check "fsx, seed ${seeds[i]}, $2 bytes, $fsx_operations operations" wait "${runs[i]}"
    done
}

# Another inline limit, and durability async.
small_cluster() {
    local main_cluster=$cluster main_mnt=$mnt
    if start_cluster small --inline-limit 4096 --durability async; then
        check "a mount that publishes often" fsx_mount
        fsx_seeds "$other" $((16 << 10)) 8192
        check "it ends" "$pando" --dir "$cluster" umount "$fsx_mnt"
        check "fsck of the small cluster" fsck
        check "the small cluster down" stop_cluster
    else
        check "a cluster with an inline limit of 4096" false
    fi
    cluster=$main_cluster mnt=$main_mnt
}

big=3 small=3 other=1
[ "${FSX_SEEDS:-some}" != all ] || { big=10 small=10 other=3; }
if install_fsx; then
    check "a mount that publishes often" fsx_mount
    fsx_seeds "$big" $((12 << 20)) 65536
    fsx_seeds "$small" $((128 << 10)) 32768
    check "it ends" "$pando" --dir "$cluster" umount "$fsx_mnt"
    check "fsck" fsck
    small_cluster
else
    skip "fsx" "it could not be installed"
fi
