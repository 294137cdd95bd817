#!/bin/bash
# `make down`: unmounts and stops what `make up` started. Builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

pando=$CARGO_TARGET_DIR/release/pando
if [ ! -x "$pando" ]; then
    echo "There is no $pando. If a cluster runs, build the program again (make build), then make down." >&2
    exit 1
fi
args=()
[ -z "${DIR:-}" ] || args+=(--dir "$DIR")
exec "$pando" down "${args[@]}"
