#!/bin/bash
# Installs what Pando needs and this machine lacks: Debian packages, each for a reason it prints.
#
#   scripts/setup.sh           what building and running need
#   scripts/setup.sh --test    and what the tests need
#   scripts/setup.sh --check   only say what is missing (with or without --test); exit 1 if anything is
#
# What is there already is left alone, wherever it came from. Needs root or sudo only if something is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

for_tests=no
check_only=no
for arg in "$@"; do
    case $arg in
        --test) for_tests=yes ;;
        --check) check_only=yes ;;
        *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

missing=()
reasons=()

# need PACKAGE REASON CHECK...: remembers the package unless the check succeeds.
need() {
    local package=$1 reason=$2
    shift 2
    if ! "$@" >/dev/null 2>&1; then
        missing+=("$package")
        reasons+=("$reason")
    fi
}
has_command() { command -v "$1" || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }
has_file() { compgen -G "$1"; }
has_library() { compgen -G "/usr/lib/*/$1" || compgen -G "/usr/lib/$1" || compgen -G "/usr/local/lib/$1"; }
has_libclang() {
    # Not libclang-cpp.so: another library, which a machine may have without this one.
    local name
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    for name in 'libclang.so*' 'libclang-[0-9]*.so*'; do
        compgen -G "/usr/lib/llvm-*/lib/$name" || has_library "$name" || continue
        return 0
    done
    return 1
}
has_clang_headers() {
    [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h'
}
has_rust() { [ -n "$PANDO_RUST" ]; }
has_fuse() { has_command fusermount3 || has_command fusermount; }

need gcc "compiles the C parts of two crates and links the program" has_command gcc
need g++ "brings the C++ library that RocksDB is linked with" has_command g++
need libc6-dev "C headers, for the same" has_file '/usr/include/stdio.h'
need make "runs the Makefile" has_command make
need librocksdb-dev "RocksDB, the store of a metadata server, ready built" has_library 'librocksdb.so'
need libclang1-14 "reads RocksDB's C header while its Rust binding is built" has_libclang
need libclang-common-14-dev "the compiler's own headers, for the same" has_clang_headers
need fuse3 "fusermount3, which mounts the filesystem for users who are not root" has_fuse
need ca-certificates "lets cargo check who it downloads crates from" has_file '/etc/ssl/certs/ca-certificates.crt'
need rustc-web "the Rust compiler ($PANDO_MSRV or newer is needed; none that new was found)" has_rust
need cargo-web "builds Rust packages" has_rust

if [ $for_tests = yes ]; then
    need git "is run on the mount; also names the commit whose hash gives CI its seeds" has_command git
    need python3 "is run on the mount, and writes the logs that outlive killed servers" has_command python3
    need rsync "is run on the mount" has_command rsync
    need tar "is run on the mount" has_command tar
    need acl "setfacl and getfacl, which are run on the mount" has_command setfacl
    need attr "setfattr and getfattr, which are run on the mount" has_command setfattr
    need zookeeper "is what coordination of several machines is tested with (3.8; Debian's, with a Java runtime)" has_file '/usr/share/zookeeper/bin/zkServer.sh'
    need valgrind "counts instructions per operation" has_command valgrind
    need iproute2 "makes hosts of network namespaces" has_command ip
    need xfsprogs "makes the XFS whose plug the power-cut tests pull" has_command xfs_io
    # Of a rustup toolchain this is a component, and asked for there; Debian has it as a package.
    if ! has_rust || [ "$PANDO_RUST" = /usr/bin ]; then
        need rustfmt-web "checks the formatting of the source" has_command rustfmt
    fi
fi

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

echo "Missing on this machine:"
for i in "${!missing[@]}"; do
    printf '  %-24s %s\n' "${missing[$i]}" "${reasons[$i]}"
done
[ $check_only = no ] || exit 1

by_hand() {
    echo >&2
    echo "$1 As root, run" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    echo "and then the same command again." >&2
    exit 1
}

command -v apt-get >/dev/null || {
    echo "This machine has no apt-get. Install the equivalents of these packages, then run the same command again." >&2
    exit 1
}
as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || by_hand "Not root, and there is no sudo."
    if sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    elif [ -t 0 ]; then
        echo "Installing needs root; sudo may ask for your password."
        as_root=(sudo)
    else
        by_hand "Not root, and sudo wants a password but there is no terminal to ask on."
    fi
fi

mkdir -p "$PANDO_CACHE"
log=$PANDO_CACHE/setup.log
run() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        echo "failed: $* (all of its output: $log)" >&2
        exit 1
    }
}
started=$SECONDS
: >"$log"
echo "Installing ${#missing[@]} packages with apt-get (log: $log) ..."
run apt-get update
run apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}"
echo "Installed in $((SECONDS - started)) s."

if ! find_rust; then
    echo "The Rust compiler that was installed is older than $PANDO_MSRV. Install a newer one (https://rustup.rs)" >&2
    echo "or enable Debian's security updates, which have rustc-web 1.96." >&2
    exit 1
fi
