# about: five hosts in network namespaces under load: links cut one way and both ways, each host cut off in turn
# limit: 900
# beside: 50-sim
set -uo pipefail
source scripts/test.d/lib.sh

why=$(why_not_root)
[ -n "$why" ] || why=$(why_missing ip)
if [ -z "$why" ]; then
    if ip netns add "pando-try-$$" 2>/dev/null; then
        ip netns del "pando-try-$$"
    else
        why="network namespaces cannot be made here"
    fi
fi
[ -n "$why" ] || [ -x /usr/share/zookeeper/bin/zkServer.sh ] || why="ZooKeeper is not installed"
if [ -n "$why" ]; then
    skip "five hosts" "$why"
    finish
fi
# It counts what it checks itself.
exec scripts/five-hosts.sh
