# about: unit, conformance and model tests
# limit: 1800
set -uo pipefail
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# What takes real processes for long is the stage 55-process.
cargo test --workspace --locked --no-fail-fast -- --skip process_ 2>&1 | tee "$out"
code=${PIPESTATUS[0]}
# One line for each test binary: "test result: ok. 3 passed; 0 failed; 1 ignored; ..."
read -r passed failed skipped < <(
    awk '/^test result: / { for (i = 1; i < NF; i++) {
            if ($(i + 1) == "passed;") p += $i
            if ($(i + 1) == "failed;") f += $i
            if ($(i + 1) == "ignored;") s += $i
        } }
        END { print p + 0, f + 0, s + 0 }' "$out"
)
# A test program that did not build or that died prints no result.
if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then
    failed=1
fi
# What failed, again, last: the runner shows the end of a log. The part between "failures:" and the list of names.
if [ "$failed" -ne 0 ]; then
    echo "=== what failed"
    awk '/^     Running |^   Doc-tests / { program = $0 }
        /^---- .* stdout ----$/ { if (!shown[program]++) print program; on = 1 }
        /^failures:$/ || /^test result: / { on = 0 }
        on' "$out" | tail -n 60
    grep -E '^error' "$out" | sort | uniq | head -n 10
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
