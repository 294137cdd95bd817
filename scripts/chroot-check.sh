#!/bin/bash
# For maintainers: does `make up` work on a machine that has nothing but Debian 12? Builds a bare system in a folder,
# puts a fresh clone into it, follows the README, and times every step. Needs root and mmdebstrap.
#
#   scripts/chroot-check.sh FOLDER              the whole check; FOLDER must not exist, and is removed at the end
#   scripts/chroot-check.sh FOLDER --build      only as far as the release build
#   scripts/chroot-check.sh FOLDER --tree       with the work tree as it is, instead of the last commit
#   scripts/chroot-check.sh FOLDER --keep       leave FOLDER there afterwards
#
# Everything runs in mount and process namespaces of its own: when it ends, however it ends, the kernel undoes the
# mounts and ends the processes. The machine's apt sources and cargo configuration are copied in, so that a machine
# that reaches its registries in a way of its own can run this too.
set -euo pipefail

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
folder=$1 until=all source=commit keep=no
shift
for arg in "$@"; do
    case $arg in
        --build) until=build ;;
        --tree) source=tree ;;
        --keep) keep=yes ;;
        *) usage ;;
    esac
done
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Enter the namespaces once, running this same script inside.
if [ -z "${PANDO_CHROOT_INSIDE:-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 1; }
    command -v mmdebstrap >/dev/null || { echo "needs mmdebstrap (apt-get install mmdebstrap)" >&2; exit 1; }
    [ ! -e "$folder" ] || { echo "$folder exists; give a folder that does not" >&2; exit 1; }
    export PANDO_CHROOT_INSIDE=$$
    # Outside the namespaces the folder holds no mounts, so removing it removes nothing else.
    trap '[ $keep = yes ] || rm -rf --one-file-system "$folder"' EXIT
    flags=()
    [ $until = all ] || flags+=(--build)
    [ $source = commit ] || flags+=(--tree)
    unshare --mount --propagation private --pid --fork --kill-child "$0" "$folder" "${flags[@]}"
    exit
fi

timings=()
step() { # "what" command...
    local what=$1 begun=$SECONDS
    shift
    echo
    echo "### $what"
    "$@"
    timings+=("$(printf '%5s s  %s' $((SECONDS - begun)) "$what")")
    echo "### $what: $((SECONDS - begun)) s"
}
in_chroot() {
    chroot "$folder" /usr/bin/env -i HOME=/srv/home PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        LANG=C.UTF-8 TERM="${TERM:-dumb}" DEBIAN_FRONTEND=noninteractive bash -euo pipefail -c "$1"
}

bootstrap() {
    local sources=()
    [ ! -e /etc/apt/sources.list.d/debian.sources ] || sources=(/etc/apt/sources.list.d/debian.sources)
    mmdebstrap --quiet --variant=minbase bookworm "$folder" "${sources[@]}"
    local file
    for file in /etc/resolv.conf /etc/hosts /etc/apt/apt.conf.d/99* /usr/local/share/ca-certificates/*; do
        [ ! -f "$file" ] || install -D -m 644 "$(readlink -f "$file")" "$folder$file"
    done
    for file in config.toml config; do
        [ ! -f "$HOME/.cargo/$file" ] || install -D -m 600 "$HOME/.cargo/$file" "$folder/srv/home/.cargo/$file"
    done
    mount -t proc proc "$folder/proc"
    mount --rbind /dev "$folder/dev"
    mount -t tmpfs tmpfs "$folder/tmp"
}

clone() {
    mkdir -p "$folder/srv/pando" "$folder/srv/home"
    if [ $source = commit ]; then
        git clone --quiet --no-hardlinks "$here" "$folder/srv/pando"
    else
        git -C "$here" ls-files -z --cached --others --exclude-standard |
            (cd "$here" && xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh) |
            tar -C "$here" --null -T - -cf - | tar -C "$folder/srv/pando" -xf -
    fi
}

smoke='
cd /srv/pando
printf "%s" "copying: "; cp -a /usr/include mnt/include; find mnt/include | wc -l
diff -r --no-dereference /usr/include mnt/include
mkdir mnt/build
for i in $(seq 100); do echo "int f$i(int x) { return x + $i; }" >mnt/build/f$i.c; done
{ for i in $(seq 100); do echo "int f$i(int);"; done
  echo "int main(void) { int x = 0;"; for i in $(seq 100); do echo "x = f$i(x);"; done; echo "return x != 5050; }"; } >mnt/build/main.c
printf "prog: \$(patsubst %%.c,%%.o,\$(wildcard *.c))\n\t\$(CC) -o \$@ \$^\n" >mnt/build/Makefile
make -s -C mnt/build -j2
mnt/build/prog
echo "built and ran a program of 101 files on the mount"'

kill_one='
for p in /proc/[0-9]*; do
    words=$(tr "\0" " " <$p/cmdline 2>/dev/null) || continue
    case $words in *pando*" server "*) echo "kill -9 ${p#/proc/}: $words"; kill -9 ${p#/proc/}; exit 0 ;; esac
done
echo "found no pando server to kill"; exit 1'

compare='
cd /srv/pando
diff -r --no-dereference /usr/include mnt/include
mnt/build/prog
echo "all there"'

step "bare Debian 12" bootstrap
step "git and make, which whoever types make up has" in_chroot "apt-get -q update && apt-get -qy install --no-install-recommends git make"
step "fresh clone" clone
if [ $until = build ]; then
    step "make setup" in_chroot "cd /srv/pando && make setup"
    step "make setup again" in_chroot "cd /srv/pando && make setup"
    step "release build of the workspace" in_chroot "cd /srv/pando && source scripts/env.sh && cargo build --release --workspace"
else
    step "make up, the first time" in_chroot "cd /srv/pando && make up"
    step "make up, the second time" in_chroot "cd /srv/pando && make up"
    step "copy a tree, compare, build a program" in_chroot "$smoke"
    step "kill -9 a server" in_chroot "$kill_one"
    step "make up after the kill" in_chroot "cd /srv/pando && make up"
    step "compare again" in_chroot "$compare"
    step "make down" in_chroot "cd /srv/pando && make down"
    step "make up with all that data" in_chroot "cd /srv/pando && make up"
    step "compare after the restart" in_chroot "$compare"
    step "make down again" in_chroot "cd /srv/pando && make down"
fi

echo
printf '%s\n' "${timings[@]}"
