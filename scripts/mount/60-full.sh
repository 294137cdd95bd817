# A server without space: what grows is refused, what is there can be read and removed, and with space writing returns.
# Its store is put on a small filesystem in memory, which a file fills.

stop_server() {
    local pid
    pid=$(server_pid "$1")
    kill -TERM "$pid"
    for _ in $(seq 100); do
        [ -d "/proc/$pid" ] || return 0
        sleep 0.1
    done
    return 1
}

# move_store NUMBER in|out: onto a filesystem of 256 MiB, or back to the disk.
move_store() {
    local store=$cluster/server-$1
    stop_server "$1" || return 1
    if [ "$2" = in ]; then
        cp -a "$store" "$store.disk" && mount -t tmpfs -o size=256m,mode=755 tmpfs "$store" && cp -a "$store.disk/." "$store/"
    else
        rm -rf "$store.disk" && cp -a "$store" "$store.disk" && umount "$store" && rm -rf "$store" && mv "$store.disk" "$store"
    fi && "$pando" --dir "$cluster" up >/dev/null
}

# on_server NUMBER FOLDER...: those of the folders whose content this server keeps.
on_server() {
    local number=$1 path
    shift
    for path in "$@"; do
        "$pando" --dir "$cluster" --json map slot "/${path#"$mnt/"}" |
            python3 -c 'import json, sys; print(json.load(sys.stdin)["paths"][0]["content_server"])' | grep -qx "$number" && echo "$path"
    done
}

# fill FOLDER: until 20 MiB are left, and stay left: the store may be giving space back.
fill() {
    local free quiet=0
    for try in $(seq 60); do
        free=$(df --output=avail -B1M "$1" | tail -n 1)
        if [ "$free" -gt 21 ]; then
            fallocate -l $((free - 20))M "$1/filler-$try" || return 1
            quiet=0
        else
            quiet=$((quiet + 1))
            [ $quiet -lt 4 ] || return 0
        fi
        sleep 0.5
    done
    echo "the server's store does not come to rest"
    return 1
}

full_server() {
    local full=$mnt/full here there free
    mkdir -p "$full"/{a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p} || return 1
    here=$(on_server 2 "$full"/? | head -n 1)
    there=$(on_server 1 "$full"/? | head -n 1)
    [ -n "$here" ] && [ -n "$there" ] || { echo "no folder on server 1 or 2"; return 1; }
    head -c 30000 /dev/urandom >"$work/data"
    cp "$work/data" "$here/keep" && cp "$work/data" "$here/cut" && cp "$work/data" "$here/gone" &&
        mkdir "$here/empty" && cp "$work/data" "$there/data" && move_store 2 in || return 1
    cat "$here/keep" >/dev/null
    fill "$cluster/server-2" || return 1
    python3 scripts/mount/full.py full "$here" "$there" "$work/data" && fsck || return 1
    rm "$cluster"/server-2/filler-*
    sleep 2
    python3 scripts/mount/full.py space "$here" "$there" "$work/data" && rm -rf "$full" && move_store 2 out && fsck
}

if [ -n "$(why_not_root)" ]; then
    skip "a full server" "$(why_not_root)"
else
    check "a full server refuses what grows, serves the rest, and recovers" full_server
fi
