# about: the mount: programs people use, kills, a full disk, fsx
# limit: 1800
#
# The pieces are scripts/mount/NN-*.sh. MOUNT_ONLY='git|fsx' runs those whose file names match;
# FSX_SEEDS=all runs every seed of fsx. What fails keeps its folder, named at the end of the log.
set -uo pipefail
source scripts/test.d/lib.sh
source scripts/mount/lib.sh

why=$(why_no_mount)
if [ -n "$why" ]; then
    skip "programs on the mount" "$why"
    finish
fi
if ! build_pando; then
    echo "the program does not build"
    stage_failed=1
    finish
fi
make_work || exit 1
trap 'take_down' EXIT
trap 'exit 130' INT TERM HUP

if ! start_cluster main; then
    stage_failed=1
    finish
fi
make_tree
for piece in scripts/mount/[0-9]*-*.sh; do
    [[ $(basename "$piece") =~ ${MOUNT_ONLY:-.} ]] || continue
    begun=$SECONDS
    # shellcheck disable=SC1090 # each defines functions and runs its checks
    source "$piece"
    echo "    $(basename "$piece") took $((SECONDS - begun)) s"
done
finish
