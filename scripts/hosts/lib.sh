# Five hosts in network namespaces, each with an address of its own, on one bridge; a sixth for clients. Sourced by
# scripts/five-hosts.sh. Everything lies in $work; nothing of the machine's own network is touched.
#
# A cut is silence, as of a cable or a switch: nobody is told. One way from A to B: A's neighbour table has an address for B that
# nobody has. A host's whole link: the bridge's end of it is down.

net=10.77.0
hosts=5
client=10 # its number

zk_program=/usr/share/zookeeper/bin/zkServer.sh
zk_hosts=(1 2 3)

work='' space='' pando=''
declare -A server_pid zk_pid

ns() { # HOST: its namespace
    echo "$space-$1"
}

# What runs in the background is started with `ip netns exec` itself, which becomes it: a function would be another process.
on() { # HOST COMMAND...: runs it there
    local host=$1
    shift
    ip netns exec "$(ns "$host")" "$@"
}

# make_hosts: the bridge, in a namespace too, and the hosts.
make_hosts() {
    local host
    space=pando-$$
    ip netns add "$(ns switch)" || return 1
    ip -n "$(ns switch)" link add br0 type bridge || return 1
    ip -n "$(ns switch)" link set br0 up
    for host in $(seq "$hosts") "$client"; do
        ip netns add "$(ns "$host")" || return 1
        ip -n "$(ns switch)" link add "port$host" type veth peer name eth0 netns "$(ns "$host")" || return 1
        ip -n "$(ns switch)" link set "port$host" master br0 up || return 1
        ip -n "$(ns "$host")" addr add "$net.$host/24" dev eth0
        ip -n "$(ns "$host")" link set lo up
        ip -n "$(ns "$host")" link set eth0 up || return 1
    done
}

cut_way() { # FROM TO: nothing gets from one to the other; the way back is open
    ip -n "$(ns "$1")" neigh replace "$net.$2" lladdr 02:00:00:00:00:01 dev eth0 nud permanent
}

mend_way() { # FROM TO
    ip -n "$(ns "$1")" neigh del "$net.$2" dev eth0 2>/dev/null
    return 0
}

cut_off() { # HOST: from everybody
    ip -n "$(ns switch)" link set "port$1" down
}

join_again() { # HOST
    ip -n "$(ns switch)" link set "port$1" up
}

everybody_but() { # HOST
    local host
    for host in $(seq "$hosts") "$client"; do
        [ "$host" = "$1" ] || echo "$host"
    done
}

# mend_all: as it was.
mend_all() {
    local a b
    for a in $(seq "$hosts") "$client"; do
        join_again "$a"
        for b in $(everybody_but "$a"); do mend_way "$a" "$b"; done
    done
}

start_zookeeper() { # HOST
    local home=$work/zk-$1 host
    mkdir -p "$home/data"
    echo "$1" >"$home/data/myid"
    {
        printf '%s\n' tickTime=500 initLimit=8 syncLimit=4 maxClientCnxns=0 admin.enableServer=false \
            "dataDir=$home/data" "clientPortAddress=$net.$1" clientPort=2181
        for host in "${zk_hosts[@]}"; do echo "server.$host=$net.$host:2888:3888"; done
    } >"$home/zoo.cfg"
    JMXDISABLE=true ZOO_LOG_DIR=$home SERVER_JVMFLAGS='-Xmx96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1' \
        ip netns exec "$(ns "$1")" "$zk_program" start-foreground "$home/zoo.cfg" </dev/null >"$home/out" 2>&1 &
    zk_pid[$1]=$!
}

# It answers `imok` before it serves.
zookeeper_serves() { # HOST
    on "$1" timeout 2 bash -c "exec 3<>/dev/tcp/$net.$1/2181 && echo srvr >&3 && grep -q '^Mode:' <&3" 2>/dev/null
}

start_server() { # HOST: its server is HOST - 1
    ip netns exec "$(ns "$1")" "$pando" --dir "$work/host-$1" server --id "$(($1 - 1))" </dev/null >>"$work/host-$1/out" 2>&1 &
    server_pid[$1]=$!
}

from_client() { # ARGUMENTS...: a pando command of the client's host
    on "$client" "$pando" --dir "$work/host-$client" "$@"
}

wait_until() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# make_cluster: ZooKeeper on three hosts, a server on each of five, a folder for each host as if it were another machine.
make_cluster() {
    local host list options=()
    for host in "${zk_hosts[@]}"; do start_zookeeper "$host"; done
    for host in "${zk_hosts[@]}"; do
        wait_until 60 zookeeper_serves "$host" || { echo "ZooKeeper of host $host does not serve"; return 1; }
    done
    for host in $(seq "$hosts"); do options+=(--server "$net.$host:7000"); done
    list=$(printf ",$net.%s:2181" "${zk_hosts[@]}")
    mkdir -p "$work/blocks" "$work/host-$client/run"
    from_client format "${options[@]}" --auth key --blocks "$work/blocks" --coord "zk://${list#,}" || return 1
    for host in $(seq "$hosts"); do
        mkdir -p "$work/host-$host/run"
        cp "$work/host-$client/cluster.json" "$work/host-$client/secret" "$work/host-$host/"
        mv "$work/host-$client/server-$((host - 1))" "$work/host-$host/"
        start_server "$host"
    done
    wait_until 60 all_are_up || { from_client status; return 1; }
    from_client auth add tester --any-uid --out "$work/host-$client/client.key"
}

all_are_up() {
    from_client status >/dev/null 2>&1
}

# take_down: whatever happened, nothing of it stays.
take_down() {
    local code=$? pid host
    trap - EXIT INT TERM HUP
    for pid in "${server_pid[@]}" "${zk_pid[@]}" "${load_pid:-}" "${probe_pid:-}"; do
        [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    for host in $(seq "$hosts") "$client" switch; do ip netns del "$(ns "$host")" 2>/dev/null; done
    if [ "$code" -eq 0 ] && [ -z "${KEEP:-}" ]; then
        rm -rf "$work"
    else
        echo "kept: $work"
    fi
    exit "$code"
}
