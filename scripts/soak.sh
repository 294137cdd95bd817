#!/bin/bash
# `make soak`: the simulator with seeds nobody has run. SEEDS of them (default 1000), from a random start, or FROM=n.
# A seed that fails goes into the regression list: see docs/testing.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh >&2
source scripts/env.sh
source scripts/test.d/lib.sh
count=${SEEDS:-1000}
sim=$(ci_build pando-sim --features plant)
first=${FROM:-$((16#$(od -An -N5 -tx1 /dev/urandom | tr -d ' \n')))}
echo "$sim run --seeds $first..$((first + count))"
exec "$sim" run --seeds "$first..$((first + count))"
