# Mounts of identities whose root is a subtree: in modes key and tls, for any user and for some, with timeouts 0 and 1.

# subtree_up MODE: a cluster of that mode; sets $sub, its mount of everything $sub_all, and the subtree there $sub_in.
subtree_up() {
    sub=$work/subtree-$1 sub_all=$work/subtree-$1.all
    mkdir -p "$sub_all" &&
        "$pando" --dir "$sub" up --servers 4 --auth "$1" --mount "$sub_all" >/dev/null &&
        sub_in=$sub_all/people/alice && mkdir -p "$sub_in" &&
        "$pando" --dir "$sub" auth add any --any-uid --subtree /people/alice --out "$sub.any" >/dev/null &&
        "$pando" --dir "$sub" auth add some --uid 4001,4002 --gid 4001,4002,4009 --subtree /people/alice --out "$sub.some" >/dev/null
}

# subtree_mount IDENTITY SECONDS: at $sub.IDENTITY.SECONDS
subtree_mount() {
    mkdir -p "$sub.$1.$2" && "$pando" --dir "$sub" mount --key "$sub.$1" --timeout "$2" "$sub.$1.$2" >/dev/null
}

subtree_umount() {
    "$pando" --dir "$sub" umount "$sub.$1.$2"
}

# subtree_rules SECONDS
subtree_rules() {
    local at=$sub.any.$1 code=0
    python3 scripts/mount/subtree.py root "$sub_in" "$at" "$1" || code=1
    python3 scripts/mount/subtree.py out "$sub_in" "$at" "$1" || code=1
    return $code
}

# subtree_permissions SECONDS WHO: as on any mount.
subtree_permissions() {
    python3 scripts/mount/permissions.py "$sub.any.$1" "$2"
}

# subtree_users SECONDS: an identity of two users, mounted by root.
subtree_users() {
    local code=0
    chmod 1777 "$sub_in" && subtree_mount some "$1" || return 1
    python3 scripts/mount/subtree.py users "$sub.some.$1" || code=1
    subtree_umount some "$1" || code=1
    rm -rf "${sub_in:?}"/*
    return $code
}

# The subtree's mount against the mount of everything.
subtree_locks() {
    local code=0
    mkdir -p "$sub_in/locks" && sleep 1.2
    python3 scripts/mount/locks.py "$sub.any.1/locks" "$sub_in/locks" || code=1
    rm -rf "$sub_in/locks"
    return $code
}

subtree_copy() {
    rm -rf "$sub.any.1/copy" && cp -a "$sub_part" "$sub.any.1/copy" && same "$sub_part" "$sub.any.1/copy"
}

# subtree_kills SERVER...: these die while a tree is copied; meanwhile the subtree gets another name. With all four: then all are restarted.
subtree_kills() {
    local n pid code=0
    (
        for n in "$@"; do
            sleep 0.7
            kill_server "$n" "$sub"
            "$pando" --dir "$sub" up >/dev/null || exit 1
        done
    ) &
    pid=$!
    subtree_copy && mv "$sub_in" "$sub_all/people/alicia" && sub_in=$sub_all/people/alicia && subtree_copy || code=1
    wait "$pid" || code=1
    same "$sub_part" "$sub_in/copy" || code=1
    [ $# -lt 4 ] || "$pando" --dir "$sub" restart >/dev/null || code=1
    same "$sub_part" "$sub.any.0/copy" || code=1
    rm -rf "$sub.any.1/copy"
    return $code
}

# The command line is shown the same root.
subtree_commands() {
    local as=("$pando" --dir "$sub" --key "$sub.any")
    "${as[@]}" mkdir /dir && "${as[@]}" chmod 711 / && "${as[@]}" xattr set / user.a b && "${as[@]}" dump / >"$work/subtree.dump" || return 1
    "${as[@]}" mkdir /loaded && "${as[@]}" load --into /loaded <"$work/subtree.dump" || return 1
    [ "$("${as[@]}" xattr get /loaded user.a)" = b ] && [ "$(stat -c %a "$sub_in/loaded")" = 711 ] || return 1
    "${as[@]}" rmdir /loaded/dir /loaded /dir && "${as[@]}" xattr rm / user.a && "${as[@]}" chmod 755 /
}

# What is revoked, or has no root any more, says so, on mounts and where one is to be made.
subtree_ends() {
    local code=0 said
    subtree_mount some 1 && "$pando" --dir "$sub" auth revoke some >/dev/null || return 1
    python3 scripts/mount/subtree.py gone "$sub.some.1" EACCES EPERM || code=1
    subtree_umount some 1 || code=1
    said=$(subtree_mount some 1 2>&1) && code=1
    grep -q revoked <<<"$said" || { echo "revoked: $said"; code=1; }
    rm -rf "${sub_in:?}" && sleep 1.2
    for n in 0 1; do
        python3 scripts/mount/subtree.py gone "$sub.any.$n" ESTALE ENOENT || code=1
        subtree_umount any $n || code=1
    done
    said=$(subtree_mount any 1 2>&1) && code=1
    grep -q 'was removed' <<<"$said" || { echo "removed: $said"; code=1; }
    ! grep -qF "$sub.any" /proc/self/mountinfo && [ "$code" = 0 ]
}

subtree_down() {
    "$pando" --dir "$sub" fsck --data && "$pando" --dir "$sub" down >/dev/null
}

if [ "$(id -u)" != 0 ]; then
    skip "mounts of a subtree" "other users are played by root"
elif subtree_up key && subtree_mount any 0 && subtree_mount any 1; then
    sub_part=$tree/odd
    for n in 0 1; do
        check "a subtree as root, timeout $n" subtree_rules $n
        check "an identity of some users, timeout $n" subtree_users $n
    done
    check "permissions below a subtree: refused by servers, timeout 0" subtree_permissions 0 servers
    check "permissions below a subtree: refused by the kernel" subtree_permissions 1 kernel
    check "locks: a mount of a subtree, and one of everything" subtree_locks
    check "copies below a subtree while servers are killed, and it is renamed" subtree_kills 0 1 2 3
    check "commands below a subtree" subtree_commands
    check "identities that end, subtrees that go" subtree_ends
    check "fsck, and all of it ends" subtree_down
    # The same again, briefly.
    sub_part=$work/subtree-part
    cp -a "$tree/odd" "$sub_part" && find "$sub_part" -size +1M -delete
    if check "mode tls" subtree_up tls && subtree_mount any 0 && subtree_mount any 1; then
        check "mode tls: a subtree as root" subtree_rules 0
        check "mode tls: an identity of some users" subtree_users 0
        check "mode tls: copies while servers are killed" subtree_kills 0
        check "mode tls: identities that end, subtrees that go" subtree_ends
        check "mode tls: fsck, and all of it ends" subtree_down
    fi
else
    check "mounts of a subtree" false
fi
