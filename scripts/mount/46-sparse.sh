# What files with holes take: st_blocks, du, and what programs that copy make of it, on two mounts.

sparse_files() {
    local second=$work/sparse.mnt code=0
    mkdir -p "$mnt/sparse" "$second" && "$pando" --dir "$cluster" mount --timeout 0 "$second" || return 1
    python3 scripts/mount/sparse.py "$mnt/sparse" "$second/sparse" 1.1 && python3 scripts/mount/sparse.py "$second/sparse" "$mnt/sparse" 1.1 || code=1
    "$pando" --dir "$cluster" umount "$second" && [ "$code" -eq 0 ]
}

# What the command line says of the same files, and that a dump keeps the holes.
sparse_commands() {
    local shown listed sum code=0
    shown=$("$pando" --dir "$cluster" stat --json /sparse/far | python3 -c 'import json, sys; f = json.load(sys.stdin)["files"][0]; print(f["size"], f["allocated"])') || return 1
    [ "$shown" = "$(((200 << 20) + 4096)) 4096" ] || { echo "pando stat: $shown"; return 1; }
    sum=$("$pando" --dir "$cluster" du --json -s /sparse/far | tr -d ' \n' | grep -o '"bytes":[0-9]*') || return 1
    [ "$sum" = '"bytes":4096' ] || { echo "pando du: $sum"; return 1; }
    listed=$("$pando" --dir "$cluster" ls -l --json /sparse | tr -d ' \n' | grep -o '"allocated":4096' | wc -l)
    [ "$listed" -ge 1 ] || { echo "pando ls: $listed files with 4096 bytes"; return 1; }
    mkdir "$mnt/loaded" && "$pando" --dir "$cluster" dump /sparse | "$pando" --dir "$cluster" load --into /loaded || code=1
    (cd "$mnt/sparse" && stat -c '%n %s %b' -- *) >"$work/sparse.from" && (cd "$mnt/loaded" && stat -c '%n %s %b' -- *) >"$work/sparse.to" || code=1
    diff "$work/sparse.from" "$work/sparse.to" || code=1
    "$pando" --dir "$cluster" fsck --data || code=1
    rm -rf "$mnt/sparse" "$mnt/loaded"
    return $code
}

check "files with holes take what is stored of them" sparse_files
check "pando stat, ls, du, dump, load and fsck of files with holes" sparse_commands
