# CephFS 16.2: one monitor, manager, object store and metadata server, and ceph-fuse. Sourced by scripts/peers.sh.

cephfs_mounts() { echo cephfs; }
cephfs_packages() {
    need ceph-mon "the monitor of Ceph" ceph-mon
    need ceph-mgr "its manager, without which it reports no health" ceph-mgr
    need ceph-osd "its object store, where the metadata server keeps everything" ceph-osd
    need ceph-mds "its metadata server" ceph-mds
    need ceph-fuse "mounts CephFS" ceph-fuse
}
cephfs_says() {
    echo "one monitor, manager, object store (bluestore in a file, one copy) and metadata server, no cephx: the kernel believes" \
        "nothing (timeouts 0 and no choice), the client what it has capabilities for; changes are answered from memory and" \
        "journaled within seconds, which clients make up for if the server dies alone"
}
cephfs_runs() {
    local what
    for what in mon mgr osd mds; do
        alive "ceph-$what" || return
    done
    alive cephfs && mountpoint -q "$peers/mnt/cephfs"
}

in_ceph() { timeout 60 ceph --conf "$peers/cephfs/ceph.conf" "$@" >>"$peers/run/ceph.log" 2>&1; }
mds_is_active() { timeout 20 ceph --conf "$peers/cephfs/ceph.conf" mds stat | grep -q up:active; }
# step "what is tried" COMMAND...
step() {
    local what=$1
    shift
    "$@" >>"$peers/run/ceph.log" 2>&1 || {
        log_of ceph
        fail "cannot $what"
    }
}
ceph_start() { # mon|mgr|osd|mds ID
    start "ceph-$1" "ceph-$1" -f -i "$2" --conf "$peers/cephfs/ceph.conf"
}

cephfs_up() {
    local port fsid osd what home=$peers/cephfs
    has_fuse && port=$(free_ports 23300 1) || return
    fsid=$(cat /proc/sys/kernel/random/uuid) osd=$(cat /proc/sys/kernel/random/uuid)
    for what in mon mgr osd mds; do
        mkdir -p "$home/$what"
    done
    cat >"$home/ceph.conf" <<CONFIGURATION
[global]
fsid = $fsid
mon host = [v2:127.0.0.1:$port]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = 26800
ms bind port max = 27300
auth cluster required = none
auth service required = none
auth client required = none
run dir = $home
admin socket =
pid file =
log file = $home/\$name.log
mon cluster log file = $home/cluster.log
crash dir = $home
keyring = $home/keyring
mon data = $home/mon
mgr data = $home/mgr
osd data = $home/osd
mds data = $home/mds
mon allow pool size one = true
mon warn on pool no redundancy = false
mgr initial modules =
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
bluestore block size = 4294967296
osd memory target = 1073741824
osd class dir = /usr/lib/$(uname -m)-linux-gnu/rados-classes
CONFIGURATION
    : >"$home/keyring"
    step "make the map of Ceph's monitors" monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$port]" "$home/monmap" || return
    step "make Ceph's monitor" ceph-mon --mkfs -i a --monmap "$home/monmap" --conf "$home/ceph.conf" || return
    ceph_start mon a
    step "reach Ceph's monitor" in_ceph mon stat || return
    ceph_start mgr a
    step "announce Ceph's object store" in_ceph osd new "$osd" || return
    step "make Ceph's object store" ceph-osd --mkfs -i 0 --osd-uuid "$osd" --conf "$home/ceph.conf" || return
    ceph_start osd 0
    ceph_start mds a
    step "make CephFS" in_ceph osd pool create peer_metadata 8 || return
    step "make CephFS" in_ceph osd pool create peer_data 8 || return
    step "make CephFS" in_ceph fs new peer peer_metadata peer_data || return
    if ! until_true 90 mds_is_active; then
        in_ceph -s
        log_of ceph
        fail "Ceph's metadata server does not become active"
        return
    fi
    mkdir -p "$peers/mnt/cephfs"
    start cephfs ceph-fuse -f --conf "$home/ceph.conf" "$peers/mnt/cephfs"
    mounted_by cephfs
}

cephfs_down() {
    local what
    take_away cephfs && stop cephfs || return
    for what in mds osd mgr mon; do
        # Without the others they would wait for them.
        stop "ceph-$what" 3 || return
    done
    remove cephfs
}
