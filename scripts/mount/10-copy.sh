# A source tree copied, packed, synchronised, searched.

copy_tree() {
    local begun
    begun=$(date +%s.%N)
    cp -a "$tree" "$mnt/copy" || return 1
    # For whoever looks for slow changes: not a limit.
    echo "cp -a: $(awk -v n="$files" -v b="$begun" -v e="$(date +%s.%N)" 'BEGIN { printf "%.1f s, %.0f files/s", e - b, n / (e - b) }')"
    same "$tree" "$mnt/copy"
}

tar_round_trip() {
    mkdir "$mnt/untarred" "$work/untarred" &&
        tar -C "$mnt/copy" --format=posix -cf - . | tar -C "$mnt/untarred" -xpf - &&
        same "$tree" "$mnt/untarred" &&
        tar -C "$mnt/untarred" --format=posix -cf - . | tar -C "$work/untarred" -xpf - &&
        same "$tree" "$work/untarred" &&
        rm -rf "$mnt/untarred" "$work/untarred"
}

rsync_twice() {
    local again
    rsync -a "$tree/" "$mnt/rsynced/" || return 1
    again=$(rsync -ai "$tree/" "$mnt/rsynced/") || return 1
    [ -z "$again" ] || { echo "the second time it has to do:"; head <<<"$again"; return 1; }
    again=$(rsync -aic "$tree/odd/" "$mnt/rsynced/odd/")
    [ -z "$again" ] || { echo "checksums differ:"; head <<<"$again"; return 1; }
    echo more >>"$mnt/rsynced/odd/mode/600"
    again=$(rsync -ai "$tree/" "$mnt/rsynced/")
    [[ $again == ">f.st...... odd/mode/600" ]] || { echo "after one change: $again"; return 1; }
    same "$tree" "$mnt/rsynced"
}

find_agrees() {
    local test
    for test in '-type f -size +8k' '-type l' '-type d' '-perm 755' '-perm /111' '-perm -4000' '-name *.rs' '-path *src/[a-m]*' \
        '-newer odd/time/3' '! -newermt 2015-01-01' '-type f -empty' '-type d -empty' '-xtype l' '-lname *crates*' '-maxdepth 2' \
        '-type f -size 0' '-mindepth 20' '-links 3 -type d' '-uid 0' '-type f -exec grep -lI unsafe {} +'; do
        # shellcheck disable=SC2086 # one word for each
        cmp <(set -f; cd "$tree" && find . $test | LC_ALL=C sort) <(set -f; cd "$mnt/copy" && find . $test | LC_ALL=C sort) ||
            { echo "find $test differs"; return 1; }
    done
}

if [ -n "$(why_missing rsync)" ]; then
    skip "rsync -a twice" "$(why_missing rsync)"
fi
check "cp -a of $files files, compared" copy_tree
check "tar c | tar x, there and back" tar_round_trip
[ -n "$(why_missing rsync)" ] || check "rsync -a twice: nothing to do the second time" rsync_twice
check "find agrees with the local disk" find_agrees
check "fsck" fsck
