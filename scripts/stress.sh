#!/bin/bash
# `make stress`: fsx and stress-ng's filesystem classes on two mounts of one filesystem at once, while servers are killed and
# started again one after the other. Then `fsck` must be clean, nothing may be open without a name, and `gc` must find no block
# that nothing speaks of.
#
#   scripts/stress.sh [MINUTES]    default 30
#
# Needs root. Installs stress-ng (Debian) and fsx (cargo). Everything is started and taken down here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --test || exit 1
source scripts/env.sh
source scripts/mount/lib.sh

minutes=${1:-30}
stage_failed=0
killer='' users=()
fsx=$PANDO_CACHE/tools/bin/fsx
# Of stress-ng 0.15's class `filesystem` those that ask something of a filesystem, and `metamix`'s parts by themselves. Not: what
# is the kernel's or another filesystem's alone (bind-mount, binderfs, dnotify, dup, eventfd, fanotify, inotify, io, ioprio, procfs),
# ioctls that no FUSE filesystem is asked (chattr, fiemap, file-ioctl, inode-flags, verity), leases (refused between
# machines) and handles (open_by_handle_at after the kernel has forgotten).
classes=(access chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl filename flock fpunch fsize fstat
    getdent hdd iomix link locka lockf lockofd mknod open rename symlink sync-file touch utime xattr)

if [ "$(id -u)" != 0 ]; then
    echo "stress-ng changes owners: run it as root" >&2
    exit 2
fi
command -v stress-ng >/dev/null || apt-get install -y -q --no-install-recommends stress-ng || exit 1
[ -x "$fsx" ] || cargo install fsx --version 0.3.2 --locked --quiet --root "$PANDO_CACHE/tools" || exit 1
build_pando && make_work || exit 1

end() {
    local pid
    for pid in $killer "${users[@]}"; do kill "$pid" 2>/dev/null; done
    "$pando" umount "$work/second" >/dev/null 2>&1
    "$pando" --dir "$cluster" down >/dev/null 2>&1
    take_down
}
start_cluster stress >/dev/null || exit 1
trap end EXIT
trap 'exit 130' INT TERM HUP
mkdir "$work/second" && "$pando" --dir "$cluster" mount --publish 1 "$work/second" || exit 1

deadline=$((SECONDS + 60 * minutes))

# each_class MOUNT NAME: one class after the other, in a folder that both mounts share, until the time is over.
each_class() {
    local round=0 class left out code
    while :; do
        for class in "${classes[@]}"; do
            left=$((deadline - SECONDS))
            [ "$left" -gt 0 ] || return 0
            mkdir -p "$1/stress" || return 1
            out=$work/stress-$2-$class.out
            # As many seconds as let each class come round several times.
            timeout 300 stress-ng --temp-path "$1/stress" --timeout $((left < 10 ? left : 10)) --verify --"$class" 2 >"$out" 2>&1
            code=$?
            # 3, 4: this machine lacks something that the class wants.
            case $code in
                0 | 3 | 4) echo "$class $code" >>"$work/classes-$2" ;;
                *) echo "$2 $class ended with $code: $(grep -m 3 -E 'fail|error' "$out")" >>"$work/bad" ;;
            esac
        done
        round=$((round + 1))
    done
}

each_seed() { # MOUNT NAME: fsx with one seed after the other, each on a file of its own
    local seed=0 log
    while [ $SECONDS -lt "$deadline" ]; do
        seed=$((seed + 1)) log=$work/fsx-$2-$seed.out
        if "$fsx" -q -N 4000 -S "$seed" -P "$work" "$1/fsx-$2-$seed" >"$log" 2>&1; then
            rm -f "$log" "$1/fsx-$2-$seed"
            echo "$seed" >>"$work/seeds-$2"
        elif "$fsx" -q -N 4000 -S "$seed" -P "$work" "$work/local-$2" >/dev/null 2>&1; then
            echo "$2 fsx seed $seed: $(tail -n 1 "$log")" >>"$work/bad"
        fi
    done
}

kills() {
    local n=0
    while [ $SECONDS -lt "$deadline" ]; do
        sleep 15
        kill -KILL "$(server_pid $((n % 4)))" && sleep 1 && "$pando" --dir "$cluster" up >"$work/up.out" 2>&1
        n=$((n + 1))
        echo "$n" >"$work/killed"
    done
}

kills &
killer=$!
each_class "$mnt" one & users+=($!)
each_class "$work/second" two & users+=($!)
each_seed "$mnt" one & users+=($!)
each_seed "$work/second" two & users+=($!)
while [ $SECONDS -lt "$deadline" ]; do
    sleep 60
    echo "$(((deadline - SECONDS) / 60)) minutes left; $(cat "$work/killed" 2>/dev/null || echo 0) kills, $(cat "$work"/seeds-* 2>/dev/null | wc -l) seeds of fsx, $(cat "$work"/classes-* 2>/dev/null | wc -l) runs of classes, $(cat "$work/bad" 2>/dev/null | wc -l) failures"
done
wait "$killer" "${users[@]}"
killer='' users=()
"$pando" --dir "$cluster" up >/dev/null || stage_failed=1

leaks() { # after the last close: what is open without a name, blocks that nothing speaks of
    local i
    for ((i = 0; i < 120; i++)); do
        "$pando" --dir "$cluster" fsck --data --json >"$work/fsck.json" && "$pando" --dir "$cluster" gc --dry-run --grace 0s --json >"$work/gc.json" &&
            python3 - "$work/fsck.json" "$work/gc.json" <<'PY' && return 0
import json, sys
fsck, gc = (json.load(open(f)) for f in sys.argv[1:])
wrong = [fsck["open_without_name"], fsck["garbage"]["files"], fsck["problem_count"], len(gc["unreferenced"])]
sys.exit(any(wrong))
PY
        sleep 1
    done
    cat "$work/fsck.json" "$work/gc.json"
    return 1
}

sort "$work"/classes-* | uniq -c | awk '{ runs += $1; if ($3 != 0) skipped = skipped " " $2 } END { print runs " runs of classes of stress-ng; not for this machine:" (skipped ? skipped : " none") }'
echo "$(cat "$work"/seeds-* | wc -l) seeds of fsx, 4,000 operations each; $(cat "$work/killed") servers killed in $minutes minutes"
rm -rf "$mnt/stress"
leaks && echo "fsck clean, no inode open without a name, no block without a record" || stage_failed=1
if [ -s "$work/bad" ]; then
    cat "$work/bad"
    stage_failed=1
fi
echo "$([ "$stage_failed" = 0 ] && echo "1 passed, 0 failed, 0 skipped" || echo "0 passed, 1 failed, 0 skipped")"
exit "$stage_failed"
