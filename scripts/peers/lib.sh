# What all peers need: packages, processes, mounts. Sourced by scripts/peers.sh, which says where they are: $peers.
#
# A peer NAME is some functions: NAME_packages (calls `need`), NAME_runs, NAME_up, NAME_down, NAME_says.

say() { echo "$*" >&2; }
# A peer's functions end with this when something does not work: what, and what to do.
fail() { say "  $*"; return 1; }

# need PACKAGE REASON COMMAND: remembers the package unless the command is there.
need() {
    command -v "$3" >/dev/null || [ -x "/usr/sbin/$3" ] || [ -x "/sbin/$3" ] || {
        missing+=("$1")
        reasons+=("$2")
    }
}

# Debian's packages start their services when they are installed, unless this file says no. It is put there only if there
# is none, and taken away again.
policy=/usr/sbin/policy-rc.d

install_packages() {
    local i code=0 made=no log=$peers/run/packages.log
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "  missing on this machine:"
    for i in "${!missing[@]}"; do
        printf '    %-18s %s\n' "${missing[$i]}" "${reasons[$i]}"
    done
    command -v apt-get >/dev/null || { fail "this machine has no apt-get: install the equivalents, then run this again"; return; }
    if [ ! -e $policy ]; then
        made=yes
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
        trap 'rm -f $policy' EXIT
    fi
    {
        apt-get update &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}"
    } >"$log" 2>&1 {lock}>&- || code=$?
    if [ $made = yes ]; then
        rm -f $policy
        trap - EXIT
    fi
    if [ $code != 0 ]; then
        tail -n 5 "$log" >&2
        cp "$log" "${TMPDIR:-/tmp}/pando-peers-packages.log"
        fail "apt-get failed (all of its output: ${TMPDIR:-/tmp}/pando-peers-packages.log)"
    fi
}

# start WHAT PROGRAM ARGUMENT...: in the background, with a log, and a file with its process. REQUIRES: a path below the folder is
# among the arguments.
start() {
    local what=$1
    shift
    setsid "$@" >"$peers/run/$what.log" 2>&1 </dev/null {lock}>&- &
    echo $! >"$peers/run/$what.pid"
    # What started it in turn, a shell, has nothing to wait for.
    disown $!
    # Until it is that program it has this one's name.
    until_true 5 has_begun "$what" $!
}

# has_begun WHAT PROCESS: it is that program by now, or has ended already.
has_begun() { alive "$1" || [ ! -d "/proc/$2" ]; }

# process WHAT: the process that was started so, if it is still that one.
process() {
    local pid
    pid=$(cat "$peers/run/$1.pid" 2>/dev/null) || return 1
    # Numbers are given again; whatever is started here has a path below the folder in its arguments.
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$peers/" || return 1
    echo "$pid"
}

alive() { process "$1" >/dev/null; }

# stop WHAT [SECONDS]: asks it to end, and insists after 15 s or so many. What it has written is removed anyway.
stop() {
    local pid i tenths=$((${2:-15} * 10))
    if pid=$(process "$1"); then
        kill "$pid" 2>/dev/null
        for ((i = 0; i < tenths; i++)); do
            alive "$1" || break
            sleep 0.1
        done
        if alive "$1"; then
            kill -9 "$pid" 2>/dev/null
            sleep 0.5
        fi
        ! alive "$1" || { fail "process $pid ($1) does not end"; return; }
    fi
    rm -f "$peers/run/$1.pid"
}

# until_true SECONDS COMMAND...: tries until it works.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# log_of WHAT: its last words, for whoever must know why.
log_of() {
    [ ! -s "$peers/run/$1.log" ] || tail -n 5 "$peers/run/$1.log" | sed 's/^/    /' >&2
}

# mounted_by WHAT: waits until that process has mounted PEERS/mnt/WHAT.
mounted_by() {
    local end=$((SECONDS + 30))
    until mountpoint -q "$peers/mnt/$1"; do
        if ! alive "$1" || [ $SECONDS -ge $end ]; then
            log_of "$1"
            fail "$1 did not mount"
            return
        fi
        sleep 0.1
    done
}

has_fuse() { [ -c /dev/fuse ] || fail "this machine has no /dev/fuse (load the kernel module, or give the container the device)"; }

# take_away WHAT: unmounts PEERS/mnt/WHAT, or PEERS/WHAT if that is a path, and removes the mountpoint.
take_away() {
    local at=$peers/mnt/$1 tries code pid
    case $1 in */*) at=$peers/$1 ;; esac
    for ((tries = 0; tries < 4; tries++)); do
        grep -qF " $at " /proc/self/mounts || break
        [ $tries = 0 ] || sleep 0.5
        code=0
        timeout -k 1 15 umount "$at" 2>/dev/null || code=$?
        # A FUSE that does not answer, because its server is gone, is ended; what it had mounted can be unmounted then.
        if [ $code -ge 124 ] && pid=$(process "$1"); then
            kill -9 "$pid"
        fi
    done
    if grep -qF " $at " /proc/self/mounts; then
        fail "$at is in use: leave it, and run this again"
        return
    fi
    [ ! -d "$at" ] || rmdir "$at"
}

# free_ports FIRST COUNT: the first of so many ports in a row, from FIRST on, where nobody listens.
free_ports() {
    local first port
    for ((first = $1; first < $1 + 2000; first += 20)); do
        for ((port = first; port < first + $2; port++)); do
            ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue 2
        done
        echo "$first"
        return
    done
    fail "no free ports from $1 on"
}

up_one() {
    local name=$1
    echo "$name ..."
    missing=() reasons=()
    "${name}_packages"
    # Half of one is of no use: what is left of it goes first.
    install_packages && "${name}_down" && mkdir -p "$peers/$name" && "${name}_up" && return
    "${name}_down"
    say "$name is left out"
    return 1
}

down_one() {
    local ran=no
    [ ! -d "$peers/$1" ] || ran=yes
    "${1}_down" || { say "$1 is not down"; return 1; }
    [ $ran = no ] || echo "$1 is down"
}

# remove NAME: its folder, in which nothing is mounted any more.
remove() {
    ! grep -qF " $peers/$1/" /proc/self/mounts || { fail "something is mounted below $peers/$1"; return; }
    rm -rf --one-file-system "${peers:?}/$1"
}

describe() {
    local at
    for at in $("${1}_mounts"); do
        printf '%s\n    %s\n' "$peers/mnt/$at" "$("${1}_says" "$at")"
    done
}
