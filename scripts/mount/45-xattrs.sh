# Extended attributes and special files, with the programs that keep them.

# same_xattrs FOLDER FOLDER: getfattr says the same of all that is in both.
same_xattrs() {
    diff <(xattrs_of "$1") <(xattrs_of "$2")
}

xattrs_of() {
    (cd "$1" && find . -print0 | sort -z | xargs -0 getfattr -h -d -m '^user\.')
}

# The kinds, bits and numbers of what is in a folder.
special() {
    (cd "$1" && find . -mindepth 1 -printf '%p %y %m %s\n' | sort && find . -type c -exec stat -c '%n %t %T' {} +)
}

xattr_rules() {
    mkdir -p "$mnt/xattrs" && python3 scripts/mount/xattrs.py "$mnt/xattrs"
}

xattr_programs() {
    local from=$work/xattrs.local at=$mnt/xattrs.programs
    mkdir -p "$from/dir/below" "$at" && echo text >"$from/file" && ln -s file "$from/link" || return 1
    setfattr -n user.author -v me "$from/file" && setfattr -n user.empty "$from/dir" || {
        echo "no extended attributes in $work: nothing to copy them from"
        return 1
    }
    setfattr -n user.large -v "$(head -c 1500 /dev/zero | tr '\0' x)" "$from/dir/below" || return 1
    cp -a --preserve=xattr,mode "$from" "$at/cp" && same_xattrs "$from" "$at/cp" || return 1
    rsync -aX "$from/" "$at/rsync/" && same_xattrs "$from" "$at/rsync" || return 1
    tar -C "$at" --xattrs -cf "$work/xattrs.tar" cp && mkdir "$at/tar" &&
        tar -C "$at/tar" --xattrs --xattrs-include='user.*' -xf "$work/xattrs.tar" && same_xattrs "$from" "$at/tar/cp" || return 1
    # There and back again, over a rename.
    mv "$at/cp/dir" "$at/cp/renamed" && mv "$at/cp/renamed" "$at/cp/dir" && same_xattrs "$from" "$at/cp" || return 1
    setfattr -x user.author "$at/cp/file" && ! getfattr -n user.author "$at/cp/file" 2>/dev/null || return 1
    [ "$("$pando" --dir "$cluster" xattr get /xattrs.programs/rsync/file user.author)" = me ] || return 1
    rm -rf "$at"
}

special_files() {
    local at=$mnt/special read
    mkdir -p "$at" && mkfifo -m 640 "$at/fifo" || return 1
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$at/socket" || return 1
    [ "$(id -u)" != 0 ] || mknod -m 600 "$at/null" c 1 3 || return 1
    special "$at"
    # Both ends are programs of this machine.
    timeout 60 sh -c 'echo through >"$1"' sh "$at/fifo" &
    read=$(timeout 60 cat "$at/fifo")
    wait $! && [ "$read" = through ] || return 1
    cp -a "$at" "$at.copy" && diff <(special "$at") <(special "$at.copy") || return 1
    "$pando" --dir "$cluster" mknod -m 600 /special/made p || return 1
    # What was made elsewhere may be unknown here for a second.
    timeout 60 sh -c 'until [ -p "$1" ]; do sleep 0.1; done' sh "$at/made" || return 1
    rm -rf "$at" "$at.copy"
}

if [ -n "$(why_missing setfattr getfattr)" ]; then
    skip "extended attributes with programs" "$(why_missing setfattr getfattr)"
else
    check "extended attributes: cp -a, rsync -X, tar --xattrs, mv, setfattr, getfattr" xattr_programs
fi
check "extended attributes: namespaces, sizes, create and replace, capabilities that go" xattr_rules
check "special files: FIFO, socket, device; cp -a" special_files
check "fsck" fsck
