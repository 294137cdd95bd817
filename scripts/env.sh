# The environment every script, and `eval "$(make -s env)"` in a shell, builds in. Sourced, never run.
# It only sets variables; scripts/setup.sh is what installs.

PANDO_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -z "${HOME:-}" ]; then
    HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
fi
PANDO_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/pando

# Outside the clone, so that a clone stays small and the cache outlives it. An empty value is as good as none.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PANDO_CACHE/target}
case $CARGO_TARGET_DIR in /*) ;; *) CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR ;; esac

# The oldest compiler that will do stands in one place: Cargo.toml.
PANDO_MSRV=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$PANDO_ROOT/Cargo.toml")

# version_at_least HAVE WANT: compares major.minor.
version_at_least() {
    local have_major=${1%%.*} want_major=${2%%.*} have_rest=${1#*.} want_rest=${2#*.}
    local have_minor=${have_rest%%.*} want_minor=${want_rest%%.*}
    [ "$have_major" -gt "$want_major" ] || { [ "$have_major" -eq "$want_major" ] && [ "$have_minor" -ge "$want_minor" ]; }
}

# rust_fits DIR: whether the toolchain in DIR is complete and new enough.
rust_fits() {
    local version
    [ -x "$1/rustc" ] && [ -x "$1/cargo" ] || return 1
    version=$("$1/rustc" --version 2>/dev/null) || return 1
    version=${version#rustc }
    version=${version%%[ -]*}
    [[ $version =~ ^[0-9]+\.[0-9]+ ]] && version_at_least "$version" "$PANDO_MSRV"
}

# Puts the first toolchain that fits in front: what PATH finds, then rustup's usual place, then Debian's.
# Leaves PANDO_RUST empty when there is none.
find_rust() {
    local found dir
    PANDO_RUST=
    found=$(command -v rustc) && found=$(dirname "$found")
    for dir in "$found" "$HOME/.cargo/bin" /usr/bin; do
        if [ -n "$dir" ] && rust_fits "$dir"; then
            PANDO_RUST=$dir
            case :$PATH: in
                ":$dir:"*) ;;
                *) [ "$dir" = "$found" ] || PATH=$dir:$PATH ;;
            esac
            return 0
        fi
    done
    return 1
}

# Debian's RocksDB is linked, not built: building its own copy would take a quarter of an hour.
if [ -z "${ROCKSDB_LIB_DIR:-}" ]; then
    ROCKSDB_LIB_DIR=/usr/lib/$(gcc -print-multiarch 2>/dev/null || true)
    ROCKSDB_LIB_DIR=${ROCKSDB_LIB_DIR%/}
fi

# What the seeds of a CI run are derived from.
if [ -z "${PANDO_CI_COMMIT:-}" ]; then
    PANDO_CI_COMMIT=$(git -C "$PANDO_ROOT" rev-parse HEAD 2>/dev/null || echo 0000000000000000000000000000000000000000)
fi

find_rust || true
export HOME PATH PANDO_ROOT PANDO_CACHE PANDO_CI_COMMIT CARGO_TARGET_DIR ROCKSDB_LIB_DIR
