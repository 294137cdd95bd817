# about: the programs that later stages run: the simulator with plants, pando without
# limit: 1500
set -uo pipefail
source scripts/test.d/lib.sh
check "pando builds" ci_build pando-cli --bin pando
check "the simulator builds" ci_build pando-sim --features plant
finish
