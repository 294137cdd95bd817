# about: real processes: kill -9 and power cuts under load, every command
# limit: 900
set -uo pipefail
source scripts/test.d/lib.sh

run() {
    cargo test --workspace --locked --test "$1" -- --test-threads 1 --nocapture
}

check "the commands, with good and bad input" run commands
# Directory IDs that collide all the time.
check "the commands, with 16-bit IDs" env PANDO_ID_BITS=16 cargo test --workspace --locked --test commands -- --test-threads 1 --nocapture
check "kill -9 under load, with 16-bit IDs" env PANDO_ID_BITS=16 cargo test --workspace --locked --test kills -- --test-threads 1 --nocapture
check "coordination in real ZooKeeper" \
    cargo test --workspace --locked --test zookeeper -- --test-threads 2 --nocapture
check "coordination of real servers: elections, ZooKeeper away" run coordination
check "identities: claims, revocation, rotation, secrets" run auth
check "kill -9 under load, sync and async" run kills
check "all servers restarted under load" run restart
check "whole trees: found, summed up, removed" run trees
check "dump and load: round trips, damage, under load" run dump
check "servers join and leave under load and kill -9" run grow
check "plans put back, and what stops them" run plans
check "file data in a bucket and in a folder: kill -9, damage, gc" run blocks
why=$(why_not_root)
[ -n "$why" ] || why=$(why_missing mkfs.xfs xfs_io losetup)
if [ -n "$why" ]; then
    skip "power cuts" "$why"
else
    check "power cuts, of one server and of all" run power
fi
finish
