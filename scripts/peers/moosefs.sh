# MooseFS 3.0: a master, and two mounts. Its chunkserver refuses 127.0.0.1; empty files need none. Sourced by scripts/peers.sh.

moosefs_mounts() { echo moosefs moosefs-nocache; }
moosefs_packages() {
    need moosefs-master "the metadata server of MooseFS" mfsmaster
    need moosefs-client "mounts MooseFS" mfsmount
}
moosefs_says() {
    local seconds=1
    [ "$1" = moosefs ] || seconds=0
    echo "one master, all metadata in memory: names and attributes are believed for $seconds s; changes are written to the log" \
        "before they are answered and never synced (CHANGELOG_SAVE_MODE = 1), so a power failure costs more than Pando's async"
}
moosefs_runs() {
    alive moosefs-master && mountpoint -q "$peers/mnt/moosefs" && mountpoint -q "$peers/mnt/moosefs-nocache"
}

moosefs_up() {
    local port at seconds=1 data=$peers/moosefs/data conf=$peers/moosefs/mfsmaster.cfg
    has_fuse && port=$(free_ports 29419 3) || return
    mkdir -p "$data"
    # As the package's own empty metadata has it.
    printf 'MFSM NEW' >"$data/metadata.mfs"
    echo '127.0.0.1 / rw,alldirs,maproot=0' >"$peers/moosefs/mfsexports.cfg"
    : >"$peers/moosefs/mfstopology.cfg"
    # Nice levels: as everybody else here. The default is -19.
    cat >"$conf" <<CONFIGURATION
WORKING_USER = root
WORKING_GROUP = root
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
DATA_PATH = $data
EXPORTS_FILENAME = $peers/moosefs/mfsexports.cfg
TOPOLOGY_FILENAME = $peers/moosefs/mfstopology.cfg
CHANGELOG_SAVE_MODE = 1
MATOML_LISTEN_HOST = 127.0.0.1
MATOML_LISTEN_PORT = $port
MATOCS_LISTEN_HOST = 127.0.0.1
MATOCS_LISTEN_PORT = $((port + 1))
MATOCL_LISTEN_HOST = 127.0.0.1
MATOCL_LISTEN_PORT = $((port + 2))
CONFIGURATION
    start moosefs-master mfsmaster -f -c "$conf" start
    if ! until_true 20 bash -c "exec 3<>/dev/tcp/127.0.0.1/$((port + 2))"; then
        log_of moosefs-master
        fail "the master of MooseFS does not serve"
        return
    fi
    for at in moosefs moosefs-nocache; do
        [ $at = moosefs ] || seconds=0
        mkdir -p "$peers/mnt/$at"
        start $at mfsmount -f -H 127.0.0.1 -P $((port + 2)) "$peers/mnt/$at" -o "mfsnice=0,mfsallowoomkiller" \
            -o "mfsattrcacheto=$seconds,mfsentrycacheto=$seconds,mfsdirentrycacheto=$seconds,mfsnegentrycacheto=0"
        mounted_by $at || return
    done
    # What is removed is gone, as elsewhere: not kept for a day.
    mfssettrashtime 0 "$peers/mnt/moosefs" >/dev/null || fail "cannot switch the trash of MooseFS off"
}

moosefs_down() {
    take_away moosefs && take_away moosefs-nocache && stop moosefs && stop moosefs-nocache && stop moosefs-master && remove moosefs
}
