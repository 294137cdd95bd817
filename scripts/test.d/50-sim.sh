# about: the simulator: seeds of this commit, seeds that ever failed, planted bugs
# limit: 1500
#
# PANDO_SIM_SEEDS: how many seeds of this commit (default 100).
set -uo pipefail
source scripts/test.d/lib.sh

# One build for all: a rule is taken out only while a run asks for it, so unplanted seeds mean the same in it.
if ! sim=$(ci_build pando-sim --features plant); then
    echo "the simulator does not build"
    stage_failed=1
    finish
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# Virtual time does not mind waiting; the stage beside this one does.
run() { nice -n 10 "$sim" "$@" 2>&1 | tee -a "$out"; }
check "seeds of this commit" run run --ci "${PANDO_SIM_SEEDS:-100}"
check "seeds that ever failed" run run --regressions
check "the hostile client's grid, with and without each check" run grid
# From one start here, and first by the seeds that found them before; `pando sim plant --all` takes three (docs/testing.md).
check "planted bugs are found" run plant --all --starts 1 --more 0 --finders-first
simulator_share "$out"
finish
