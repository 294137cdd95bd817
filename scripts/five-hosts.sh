#!/bin/bash
# Five hosts in network namespaces, three of them with ZooKeeper, under load: links are cut one way and both ways, each host
# is cut off in turn. Nothing acknowledged may be lost, and whoever can be reached, with a majority of ZooKeeper, goes on.
#
#   scripts/five-hosts.sh                  each once: about four minutes
#   scripts/five-hosts.sh --rounds N       all that N times
#   scripts/five-hosts.sh --only 'host 1'  the cuts whose names match this regular expression
#
# Needs root and the packages of scripts/setup.sh --test. PANDO_BIN: a program built elsewhere. KEEP=1: the folder stays.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh
source scripts/test.d/lib.sh
source scripts/hosts/lib.sh

rounds=1 only=.
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=${2:?}; shift 2 ;;
        --only) only=${2:?}; shift 2 ;;
        *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

# How long a cut lasts. Until a coordinator that is cut off has been replaced: its session (4 s), its lease (2 s), and what
# it takes the others to notice; and then there must be time to see that they go on.
cut_seconds=${CUT_SECONDS:-24}
# By when whoever needs no new coordinator goes on, and by when everybody does. Without a coordinator nobody has a lease.
soon=8 elected=18
# By when ZooKeeper has a leader, if its own was cut: it waits 4 s for one that hears nothing, 5 s for a connection to one that is not
# heard, and tries again. (More than 15 s once.)
zookeeper=60
# By when all is well after a cut has been mended.
healed=30

# What stands in the way is a failure here, not a reason to skip: the caller asked for it.
lacking=$(why_not_root)
[ -n "$lacking" ] || lacking=$(why_missing ip)
[ -n "$lacking" ] || [ -x "$zk_program" ] || lacking="ZooKeeper is not installed (scripts/setup.sh --test)"
if [ -n "$lacking" ]; then
    echo "five hosts cannot be made: $lacking"
    exit 1
fi
if [ -z "${PANDO_BIN:-}" ]; then
    PANDO_BIN=$(ci_build pando-cli --bin pando) || exit 1
fi
mkdir -p "$PANDO_CACHE/five-hosts"
work=$(mktemp -d "$PANDO_CACHE/five-hosts/run-XXXXXX") || exit 1
# A copy: a build meanwhile must not change what runs.
cp "$PANDO_BIN" "$work/pando" || exit 1
pando=$work/pando
trap take_down EXIT
trap 'exit 130' INT TERM HUP

# lines SERVER KIND FROM TO: how many operations the probe did between two times.
lines() {
    awk -v s="$1" -v k="$2" -v from="$3" -v to="$4" \
        '$1 == "P" && $2 == s && $3 == k && $4 >= from && $4 < to { n++ } END { print n + 0 }' "$work/probe.log"
}

now() { date +%s%3N; }

# goes_on SERVER KIND FROM TO: they do not stop.
goes_on() {
    local n
    n=$(lines "$@")
    [ "$n" -ge 5 ] || { echo "server $1: $n operations of kind $2 in $((($4 - $3) / 1000)) s"; return 1; }
}

# all_go_on: every server, every kind, in the last second.
all_go_on() {
    local server kind end
    end=$(now)
    for server in $(seq 0 $((hosts - 1))); do
        for kind in file rename chmod; do
            [ "$(lines "$server" "$kind" $((end - 1500)) "$end")" -ge 1 ] || return 1
        done
    done
}

# during NAME "HOSTS THAT ARE OUT" CUT...: makes a cut, sees who goes on, mends it, and waits until everybody does.
during() {
    local name=$1 out=$2
    shift 2
    [[ $name =~ $only ]] || return 0
    check "$name" witness "$out" "$@"
}

witness() {
    local out=" $1 " begin served end host kind bad=0 files=$soon
    shift
    # The coordinator's host is at one end of what is cut.
    case "${*:2}" in *"$(($(coordinator) + 1))"*) files=$elected ;; esac
    begin=$(now)
    "$@"
    served=$(while_zookeeper_elects "$out")
    end=$(now)
    for host in $(seq "$hosts"); do
        case $out in *" $host "*) continue ;; esac
        goes_on $((host - 1)) file $((served + files * 1000)) "$end" || bad=1
        for kind in rename chmod; do
            goes_on $((host - 1)) "$kind" $((served + elected * 1000)) "$end" || bad=1
        done
    done
    first_change_after "$begin"
    mend_all
    wait_until "$healed" all_go_on || { echo "$healed s after the cut was mended not everybody goes on"; bad=1; }
    alive || bad=1
    return "$bad"
}

# while_zookeeper_elects OUT: waits until ZooKeeper has served somebody who is not out for $cut_seconds, and says since when it does.
# If its own leader hears nothing, the others vote for it again and wait for it as long as initLimit says; no coordinator can be elected meanwhile.
while_zookeeper_elects() {
    local since begin host
    since=$(now) begin=$since
    until [ "$(now)" -ge $((since + cut_seconds * 1000)) ]; do
        sleep 0.2
        for host in "${zk_hosts[@]}"; do
            case $1 in *" $host "*) continue ;; esac
            zookeeper_serves "$host" && continue 2
        done
        since=$(now)
        [ "$since" -lt $((begin + zookeeper * 1000)) ] ||
            { echo "    ZooKeeper served nobody for $zookeeper s: who goes on cannot be seen" >&2; break; }
    done
    [ "$since" = "$begin" ] || echo "    ZooKeeper elected for $(((since - begin) / 1000)) s" >&2
    echo "$since"
}

# first_change_after TIME: how long changes of directories stood still, for the log.
first_change_after() {
    awk -v t="$1" '$1 == "P" && $3 == "rename" && $4 >= t { last[$2] = last[$2] == "" ? t : last[$2]
            if ($4 - last[$2] > gap[$2]) gap[$2] = $4 - last[$2]; last[$2] = $4 }
        END { for (s in gap) printf "    server %s: renames of directories stood still for up to %.1f s\n", s, gap[s] / 1000 }' \
        "$work/probe.log" | sort
}

# alive: no server and no client has ended.
alive() {
    local host
    for host in $(seq "$hosts"); do
        kill -0 "${server_pid[$host]}" 2>/dev/null || { echo "server $((host - 1)) has ended:"; tail -n 5 "$work/host-$host/out"; return 1; }
    done
    kill -0 "$load_pid" 2>/dev/null || { echo "the hammer has ended:"; grep ^X "$work/hammer.log"; tail -n 3 "$work/hammer.out"; return 1; }
    kill -0 "$probe_pid" 2>/dev/null || { echo "the probe has ended:"; grep ^X "$work/probe.log"; tail -n 3 "$work/probe.out"; return 1; }
}

cut_deaf() { # HOST: nothing reaches it
    local other
    for other in $(everybody_but "$1"); do cut_way "$other" "$1"; done
}

cut_mute() { # HOST: nothing it says is heard
    local other
    for other in $(everybody_but "$1"); do cut_way "$1" "$other"; done
}

cut_link() { # A B
    cut_way "$1" "$2"
    cut_way "$2" "$1"
}

coordinator() {
    from_client map --json | sed -n 's/^  "coordinator": \([0-9]*\),\{0,1\}$/\1/p' | head -n 1
}

make_hosts || { echo "network namespaces cannot be made here"; exit 1; }
check "a cluster of five hosts" make_cluster
[ "$stage_failed" -eq 0 ] || exit 1
echo "folder: $work"

# Their input ends when this script does, whatever happens to it; what they say is in files.
mkfifo "$work/until"
exec 9<>"$work/until"
as_client=(ip netns exec "$(ns "$client")" "$pando" --dir "$work/host-$client")
"${as_client[@]}" hammer run --tasks 16 --seconds 100000 --until-eof --name five <"$work/until" >"$work/hammer.log" 2>"$work/hammer.out" 9>&- &
load_pid=$!
"${as_client[@]}" hammer probe --name five <"$work/until" >"$work/probe.log" 2>"$work/probe.out" 9>&- &
probe_pid=$!
check "everybody goes on at first" wait_until 60 all_go_on
[ "$stage_failed" -eq 0 ] || { tail -n 3 "$work"/*.out; exit 1; }

for _ in $(seq "$rounds"); do
    for host in $(seq "$hosts"); do
        during "host $host cut off" "$host" cut_off "$host"
    done
    busy=$(($(coordinator) + 1))
    during "the coordinator's host, $busy, hears nothing" "$busy" cut_deaf "$busy"
    busy=$(($(coordinator) + 1))
    during "the coordinator's host, $busy, is not heard" "$busy" cut_mute "$busy"
    busy=$(($(coordinator) + 1)) other=$((busy % hosts + 1))
    # Clients reach both, and so does ZooKeeper. One of the two is left out.
    during "the link between hosts $busy, which coordinates, and $other" "$other" cut_link "$busy" "$other"
    during "the way from host 4 to host 5" "4 5" cut_way 4 5
done

check "everybody went on, to the end" alive
exec 9>&-
end_of_load() { # PID NAME
    wait "$1" || { echo "it failed:"; grep -h ^X "$work/$2.log"; tail -n 3 "$work/$2.out"; return 1; }
}
check "the hammer met no error" end_of_load "$load_pid" hammer
check "the probe met no error" end_of_load "$probe_pid" probe
load_pid='' probe_pid=''
check "every acknowledged operation is there, once" from_client hammer verify "$work/hammer.log"
check "fsck" from_client fsck
echo "$(grep -c ^A "$work/hammer.log") operations of the hammer and $(grep -c ^P "$work/probe.log") of the probe were acknowledged"
finish
