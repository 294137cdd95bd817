# Names that another mount removes and replaces while they are walked to, and directories that it removes while they are open.

# races TIMEOUT: on two more mounts that believe names for so many seconds.
races() {
    local one=$work/races-1.mnt two=$work/races-2.mnt code=1
    mkdir -p "$one" "$two" "$mnt/races-$1" && "$pando" --dir "$cluster" mount --timeout "$1" "$one" || return 1
    if "$pando" --dir "$cluster" mount --timeout "$1" "$two"; then
        python3 scripts/mount/races.py "$one/races-$1" "$two/races-$1" 2 all
        code=$?
        "$pando" umount "$two" || code=1
    fi
    "$pando" umount "$one" || code=1
    rm -rf "$mnt/races-$1" || code=1
    return "$code"
}

check "races between mounts that ask for everything" races 0
check "races between mounts that believe names for a second" races 1
check "fsck" fsck
