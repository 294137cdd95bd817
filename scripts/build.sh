#!/bin/bash
# Installs what is missing and builds the program in release mode. Prints the path of the program last.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh >&2
source scripts/env.sh # after setup: it may have installed the compiler

cargo build --release --locked --package pando-cli --bin pando >&2
echo "$CARGO_TARGET_DIR/release/pando"
