# about: the simulator: seeds of this commit, seeds that ever failed, planted bugs, also in the model of births
# limit: 1500
#
# PANDO_SIM_SEEDS: how many seeds of this commit (default 300).
set -uo pipefail
source scripts/test.d/lib.sh

# One build for all: a rule is taken out only while a run asks for it, so unplanted seeds mean the same in it.
if ! cargo build --release --locked --package pando-sim --features plant; then
    echo "the simulator does not build"
    stage_failed=1
    finish
fi
sim=$CARGO_TARGET_DIR/release/pando-sim
check "seeds of this commit" "$sim" run --ci "${PANDO_SIM_SEEDS:-300}"
check "seeds that ever failed" "$sim" run --regressions
check "the hostile client's grid, with and without each check" "$sim" grid
# From one start here, and first by the seeds that found them before; `pando sim plant --all` takes three (docs/testing.md).
check "planted bugs are found" "$sim" plant --all --starts 1 --more 0 --finders-first
check "planted bugs are found by the model of births" \
    cargo test --locked --package pando-namespace --features plant --test births counterexample
finish
