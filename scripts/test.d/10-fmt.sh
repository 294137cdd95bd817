# about: the source is formatted
# limit: 120
source scripts/test.d/lib.sh
if cargo fmt --version >/dev/null 2>&1; then
    check "cargo fmt --check" cargo fmt --all --check
else
    skip "formatting" "this toolchain has no rustfmt"
fi
finish
