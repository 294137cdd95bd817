# about: real processes: kill -9 and power cuts under load, every command
# limit: 1500
#
# Its tests are those in modules `processes`, found by cargo. PROCESS_ONLY=grow runs those whose names contain that.
set -uo pipefail
source scripts/test.d/lib.sh
out=$(mktemp)
trap 'rm -f "$out"' EXIT
tests=(cargo test --workspace --locked --features pando-server/plant,pando-namespace/plant)
only=(processes::"${PROCESS_ONLY:-}")
if [ ! -x /usr/share/zookeeper/bin/zkServer.sh ]; then
    skip "tests with ZooKeeper" "it is not installed: scripts/setup.sh --test does it"
    only+=(--skip zookeeper)
fi

there=$("${tests[@]}" --quiet -- --list "${only[@]}" 2>/dev/null | grep -c ': test$')
# Those mostly wait until sessions and leases of what was killed have ended: a minute each.
waiting=(processes::blocks processes::bulk)
beside=$(mktemp)
trap 'rm -f "$out" "$beside"' EXIT
code=0 beside_pid=''
if [ -z "${PROCESS_ONLY:-}" ]; then
    "${tests[@]}" --no-fail-fast -- --test-threads 1 --nocapture "${waiting[@]}" >"$beside" 2>&1 &
    beside_pid=$!
    for name in "${waiting[@]}"; do only+=(--skip "$name"); done
fi
# One after the other: they measure, and share the machine with what they start.
"${tests[@]}" --no-fail-fast -- --test-threads 1 --nocapture "${only[@]}" 2>&1 | tee "$out"
code=${PIPESTATUS[0]}
if [ -n "$beside_pid" ]; then
    wait "$beside_pid" || code=1
    tee -a "$out" <"$beside"
fi
read -r passed failed skipped _ < <(count_tests "$out")
if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then
    failed=1
fi
if [ "$failed" -eq 0 ] && { [ $((passed + skipped)) -ne "$there" ] || [ "$there" -eq 0 ]; }; then
    echo "there are $there tests; $passed passed and $skipped were skipped"
    failed=1
fi
[ "$failed" -eq 0 ] || show_failures "$out"
sed -n 's/^SKIPPED /skip: /p' "$out"
stage_passed=$passed stage_failed=$failed stage_skipped=$((stage_skipped + skipped))

# Directory IDs that collide all the time.
if [ -z "${PROCESS_ONLY:-}" ]; then
    for what in commands processes::kills; do
        check "$what, with 16-bit IDs" env PANDO_ID_BITS=16 "${tests[@]}" --package pando-cli -- --test-threads 1 --nocapture "$what"
    done
fi
finish
