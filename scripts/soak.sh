#!/bin/bash
# `make soak`: the simulator with seeds nobody has run. SEEDS of them (default 1000), from a random start, or FROM=n.
# A seed that fails goes into the regression list: see docs/testing.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count=${SEEDS:-1000}
pando=$(scripts/build.sh)
first=${FROM:-$((16#$(od -An -N5 -tx1 /dev/urandom | tr -d ' \n')))}
echo "$pando sim run --seeds $first..$((first + count))"
exec "$pando" sim run --seeds "$first..$((first + count))"
