# Peers of this machine alone: tmpfs and ext4, which are what a kernel can do, and bindfs, which is what a FUSE can do that only
# passes on. Sourced by scripts/peers.sh.

tmpfs_mounts() { echo tmpfs; }
tmpfs_packages() { :; }
tmpfs_says() { echo "in memory: no timeouts, nothing survives"; }
tmpfs_runs() { mountpoint -q "$peers/mnt/tmpfs"; }
tmpfs_up() {
    mkdir -p "$peers/mnt/tmpfs" && mount -t tmpfs -o size=25%,mode=755 pando-peer "$peers/mnt/tmpfs" || fail "cannot mount a tmpfs"
}
tmpfs_down() { take_away tmpfs && remove tmpfs; }

ext4_mounts() { echo ext4; }
ext4_packages() { need e2fsprogs "mkfs.ext4, which makes the ext4" mkfs.ext4; }
ext4_says() { echo "on a loop device over a file: no timeouts; the journal is committed every 5 s, as Pando's async syncs"; }
ext4_runs() { mountpoint -q "$peers/mnt/ext4"; }
ext4_up() {
    local image=$peers/ext4/image
    # Enough inodes for every benchmark, and none made in the background meanwhile.
    mkdir -p "$peers/mnt/ext4" && truncate -s 2G "$image" &&
        mkfs.ext4 -q -F -N 1000000 -E lazy_itable_init=0,lazy_journal_init=0 "$image" || { fail "cannot make an ext4 in $image"; return; }
    mount -o loop,commit=5 "$image" "$peers/mnt/ext4" || fail "cannot mount $image (does this machine have loop devices?)"
}
ext4_down() { take_away ext4 && remove ext4; }

bindfs_mounts() { echo bindfs bindfs-nocache; }
bindfs_packages() { need bindfs "the FUSE that only passes on" bindfs; }
bindfs_says() {
    local seconds=1
    [ "$1" = bindfs ] || seconds=0
    echo "passes on to a tmpfs, multithreaded: names and attributes are believed for $seconds s; nothing survives"
}
bindfs_runs() { mountpoint -q "$peers/mnt/bindfs" && mountpoint -q "$peers/mnt/bindfs-nocache" && alive bindfs && alive bindfs-nocache; }
bindfs_up() {
    local at seconds=1
    has_fuse || return
    mkdir -p "$peers/bindfs/behind"
    mount -t tmpfs -o size=25%,mode=755 pando-peer "$peers/bindfs/behind" || { fail "cannot mount a tmpfs"; return; }
    for at in bindfs bindfs-nocache; do
        [ $at = bindfs ] || seconds=0
        mkdir -p "$peers/mnt/$at" "$peers/bindfs/behind/$at"
        start $at bindfs -f --multithreaded -o "attr_timeout=$seconds,entry_timeout=$seconds,negative_timeout=0" \
            "$peers/bindfs/behind/$at" "$peers/mnt/$at"
        mounted_by $at || return
    done
}
bindfs_down() {
    take_away bindfs && take_away bindfs-nocache && stop bindfs && stop bindfs-nocache && take_away bindfs/behind && remove bindfs
}
