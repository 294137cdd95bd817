# about: the architecture's rules hold (crates/tidy)
# limit: 600
source scripts/test.d/lib.sh
check "pando-tidy" cargo run --quiet --locked --package pando-tidy -- .
finish
