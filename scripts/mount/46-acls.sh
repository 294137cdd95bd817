# Access control lists: as the kernel checks by them, on two mounts, by command, and with the programs that keep them.

acl_rules() {
    local second=$work/acls.mnt code
    mkdir -p "$second" "$mnt/acls" && "$pando" --dir "$cluster" mount "$second" || return 1
    python3 scripts/mount/acls.py "$mnt/acls" "$second/acls"
    code=$?
    "$pando" --dir "$cluster" umount "$second" && [ "$code" -eq 0 ] && rm -rf "$mnt/acls"
}

# acl_bytes FILE: its list as the mount shows it.
acl_bytes() {
    python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "system.posix_acl_access").hex())' "$1"
}

acl_command() {
    local at=$mnt/acls.command list=user::rw-,user:1000:r--,group::---,mask::r--,other::---
    pando_here() { "$pando" --dir "$cluster" "$@"; }
    rm -rf "$at" && mkdir "$at" && : >"$at/file" || return 1
    pando_here acl set /acls.command/file "$list" || return 1
    [ "$(pando_here acl get /acls.command/file | grep -v '^#' | tr '\n' ,)" = "$list,," ] || return 1
    [ "$(pando_here --json acl get /acls.command/file | python3 -c 'import json, sys; print(json.load(sys.stdin)["lists"][0]["access"]["users"])')" = "[{'id': 1000, 'permissions': 4}]" ] || return 1
    # What was changed elsewhere may be unknown here for a second.
    timeout 60 sh -c 'until [ "$(stat -c %a "$1")" = 640 ]; do sleep 0.1; done' sh "$at/file" || return 1
    acl_bytes "$at/file" >/dev/null || return 1
    pando_here acl set /acls.command --default u::7,u:1000:7,g::5,o::0 || return 1
    pando_here mkdir -p /acls.command/a/b && pando_here acl get /acls.command/a/b | grep -qx default:user:1000:rwx || return 1
    pando_here acl remove /acls.command --default /acls.command/a || return 1
    ! pando_here acl get /acls.command /acls.command/a | grep -q default || return 1
    # Bad lists, and default lists of files, are refused with a word.
    ! pando_here acl set /acls.command/file u::7 2>"$work/acl.out" && grep -q 'user::' "$work/acl.out" || return 1
    ! pando_here acl set /acls.command/file --default u::7,g::7,o::7 2>"$work/acl.out" && grep -q 'only directories' "$work/acl.out" || return 1
    # Servers that start again, dumped and loaded.
    pando_here restart >/dev/null || return 1
    pando_here acl set /acls.command/a --default u::7,g::5,g:7:7,o::0 && : >"$at/a/inherits" && chmod 600 "$at/a" || return 1
    pando_here dump /acls.command -o "$work/acls.dump" && mkdir "$mnt/acls.loaded" && pando_here load --into /acls.loaded "$work/acls.dump" || return 1
    diff <(acl_tree /acls.command) <(acl_tree /acls.loaded) || return 1
    rm -rf "$at" "$mnt/acls.loaded" "$work/acls.dump"
}

# acl_tree PATH: the lists of all below.
acl_tree() {
    local name
    for name in '' /file /a /a/b /a/inherits; do
        "$pando" --dir "$cluster" acl get "$1$name" | sed "s|^# file: $1|# file: |" || return 1
    done
}

acl_programs() {
    local at=$mnt/acls.programs
    mkdir -p "$at/from" && : >"$at/from/file" && setfacl -m u:1000:rw,g:7:r "$at/from/file" && setfacl -d -m u:1000:rwx "$at/from" || return 1
    getfacl -n -c "$at/from/file" 2>/dev/null | grep -qx user:1000:rw- || return 1
    cp -a "$at/from" "$at/cp" && rsync -aA "$at/from/" "$at/rsync/" && tar -C "$at" --acls -cf "$work/acls.tar" from &&
        mkdir "$at/tar" && tar -C "$at/tar" --acls -xf "$work/acls.tar" || return 1
    for copy in cp rsync tar/from; do
        diff <(cd "$at/from" && getfacl -n -R .) <(cd "$at/$copy" && getfacl -n -R .) || return 1
    done
    setfacl -b "$at/from/file" && [ "$(getfacl -n -c "$at/from/file" | grep -c .)" = 3 ] || return 1
    rm -rf "$at" "$work/acls.tar"
}

check "access control lists: rules, inheritance, users and groups, seen on a second mount" acl_rules
check "access control lists: pando acl, dump and load" acl_command
if [ -n "$(why_missing setfacl getfacl rsync)" ]; then
    skip "access control lists with programs" "$(why_missing setfacl getfacl rsync)"
else
    check "access control lists: setfacl, getfacl, cp -a, rsync -A, tar --acls" acl_programs
fi
check "fsck" fsck
