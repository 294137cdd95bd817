# about: clippy finds nothing
# limit: 1200
source scripts/test.d/lib.sh
if cargo clippy --version >/dev/null 2>&1; then
    check "cargo clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
else
    skip "clippy" "this toolchain has no clippy (Debian does not package one for it)"
fi
finish
