# Helpers of the mount stage: a cluster in a folder of its own, mounted, and taken down whatever happens.
# Sourced by scripts/test.d/60-mount.sh, posix.sh and stress.sh. Everything lies in $work; the mount is $mnt.

declare -F ci_build >/dev/null || source scripts/test.d/lib.sh

# What this stage makes for itself: others' settings must not reach in.
unset PANDO_DIR PANDO_LOG MAKEFLAGS MAKELEVEL MFLAGS GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
export LC_ALL=C.UTF-8 GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 PYTHONDONTWRITEBYTECODE=
umask 022

work='' mnt='' cluster='' pando=''

# PANDO_BIN names another program to test, which is not built.
build_pando() {
    [ -z "${PANDO_BIN:-}" ] || return 0
    PANDO_BIN=$(ci_build pando-cli --bin pando)
}

# make_work: a new folder, with a copy of the program: a build meanwhile must not change what runs.
make_work() {
    local old pid
    mkdir -p "$PANDO_CACHE/mount-test" || return 1
    # What an earlier run that was killed has left.
    for old in "$PANDO_CACHE"/mount-test/run-*/; do
        pid=$(cat "$old/pid" 2>/dev/null) || continue
        [ -d "/proc/$pid" ] || clear_away "${old%/}"
    done
    work=$(mktemp -d "$PANDO_CACHE/mount-test/run-XXXXXX") || return 1
    echo $$ >"$work/pid"
    cp "$PANDO_BIN" "$work/pando" || return 1
    pando=$work/pando
    echo "folder: $work"
}

# start_cluster NAME OPTION...: a cluster of 4 servers, mounted; sets $cluster and $mnt.
start_cluster() {
    local name=$1
    shift
    cluster=$work/$name mnt=$work/$name.mnt
    echo "=== cluster $name: 4 servers $*"
    "$pando" --dir "$cluster" up --servers 4 --mount "$mnt" "$@"
}

# run_pids FOLDER [NAME]: processes of this cluster, or of all clusters, in the folder that still run.
run_pids() {
    local lock pid
    for lock in "$1"/${2:-*}/run/*.lock; do
        [ -e "$lock" ] || continue
        pid=$(tr -cd 0-9 <"$lock")
        [ -n "$pid" ] && [ "$(readlink "/proc/$pid/exe")" = "$1/pando" ] && echo "$pid"
    done
}

server_pid() { # NUMBER [CLUSTER]
    tr -cd 0-9 <"${2:-$cluster}/run/server-$1.lock"
}

# kill_server NUMBER [CLUSTER]: kill -9, and the line by which `make test` counts it.
kill_server() {
    local pid
    pid=$(server_pid "$@") && kill -KILL "$pid" && echo "killed: server $1, pid $pid"
}

# stop_cluster: `down`, which must leave nothing behind.
stop_cluster() {
    "$pando" --dir "$cluster" down || return 1
    [ -z "$(run_pids "$work" "$(basename "$cluster")")" ] || { echo "something still runs"; return 1; }
    ! grep -qF " $mnt " /proc/self/mountinfo
}

# clear_away FOLDER: by force, what runs and is mounted there, and the folder.
clear_away() {
    local at
    run_pids "$1" | xargs -r kill -KILL
    awk -v in_="$1/" 'index($5, in_) == 1 { print $5 }' /proc/self/mountinfo | while read -r at; do
        if [ "$(id -u)" = 0 ]; then umount -l "$at"; else fusermount3 -uz "$at"; fi
    done
    chmod -R u+rwX "$1" 2>/dev/null
    rm -rf --one-file-system "$1"
}

take_down() {
    local code=$? left
    trap - EXIT INT TERM HUP
    left=$(jobs -p)
    # shellcheck disable=SC2086 # one word for each
    [ -z "$left" ] || kill $left 2>/dev/null
    if [ "$stage_failed" -ne 0 ] && [ "$code" -ne 130 ]; then
        keep_logs
    fi
    clear_away "$work"
    exit "$code"
}

keep_logs() {
    local log to=$PANDO_CACHE/logs/mount-failed
    rm -rf "$to" && mkdir -p "$to"
    for log in "$work"/*/run/*.log "$work"/*.out "$work"/fsx-*/; do
        [ -e "$log" ] && cp -r "$log" "$to/$(basename "$(dirname "$(dirname "$log")")")-$(basename "$log")"
    done
    echo "logs of servers and mounts: $to"
}

# fsck: clean, or it says why not. Dirty pages must be on the servers first.
fsck() {
    sync -f "$mnt" && "$pando" --dir "$cluster" fsck --data
}

# manifest FOLDER: all but content: type, mode, owner, mtime with nanoseconds, size, target.
manifest() {
    (cd "$1" && find . \( -type d -printf '%P\0 %y %m %U:%G %T@\0\n' \) -o \
        -printf '%P\0 %y %m %U:%G %T@ %s %l\0\n') | LC_ALL=C sort
}

# same A B: byte by byte, and what `manifest` shows.
same() {
    diff -r --no-dereference "$1" "$2" | head -n 20
    [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "$1 and $2 differ"; return 1; }
    diff --text <(manifest "$1") <(manifest "$2") | head -n 20
    [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "$1 and $2 differ in attributes"; return 1; }
}

# make_tree: $tree, a source tree of at least 5,000 files with symlinks, on the local disk.
make_tree() {
    tree=$work/tree
    local crate from=${CARGO_HOME:-$HOME/.cargo}/registry/src
    mkdir -p "$tree/crates" "$tree/odd/empty"
    for crate in "$from"/*/*/; do
        [ -d "$crate" ] || continue
        cp -a "${crate%/}" "$tree/crates/"
        [ "$(find "$tree/crates" -type f | wc -l)" -lt "${TREE_FILES:-4000}" ] || break
    done
    python3 scripts/mount/odd_tree.py "$tree" "${TREE_FILES:-4000}"
    files=$(find "$tree" -type f | wc -l) links=$(find "$tree" -type l | wc -l)
    echo "source tree: $files files, $links symlinks, $(du -sm "$tree" | cut -f 1) MiB"
}
