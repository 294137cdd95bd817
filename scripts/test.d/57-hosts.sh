# about: five hosts in network namespaces under load: links cut one way and both ways, each host cut off in turn
# limit: 900
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
if [ -z "${PANDO_BIN:-}" ]; then
    # The hosts wait more than they work: they run the program of the tests, and from what they leave over the one of the next stages is built.
    if ! cargo test --workspace --locked --quiet --no-run --test commands; then
        check "the program of the tests" false
        finish
    fi
    export PANDO_BIN=$CARGO_TARGET_DIR/debug/pando
    chrt --idle 0 cargo build --release --locked --quiet --package pando-cli --bin pando 2>/dev/null &
    building=$!
fi
# It counts what it checks itself.
scripts/five-hosts.sh
code=$?
# If it does not build, the next stage says why.
[ -z "${building:-}" ] || wait "$building"
exit $code
