# Clients with a copy of cluster.json and a key: in other folders, of other users, with and without a way to the block store.

# elsewhere_up: a cluster of mode key with a small and a large file, and the program where other users come to it.
elsewhere_up() {
    there=$work/elsewhere
    "$pando" --dir "$there" up --servers 2 --auth key >/dev/null &&
        chmod 711 "$work" "$there" && there_in=$(mktemp -d /tmp/pando-elsewhere-XXXXXX) && chmod 755 "$there_in" && cp "$pando" "$there_in/pando" &&
        echo small >"$there_in/small" && head -c 300000 /dev/urandom >"$there_in/large" && chmod 644 "$there_in"/[sl]* &&
        "$pando" --dir "$there" mkdir /pub && "$pando" --dir "$there" chmod 1777 /pub &&
        "$pando" --dir "$there" put "$there_in/small" "$there_in/large" /pub &&
        "$pando" --dir "$there" auth add root --any-uid --out "$there_in/root.key" >/dev/null &&
        "$pando" --dir "$there" auth add user --uid 4001 --gid 4001 --out "$there_in/user.key" >/dev/null
}

# elsewhere_client WHO UID: a client's folder, as docs/operations.md has it.
elsewhere_client() {
    client=$there_in/$1 client_as=(setpriv --reuid "$2" --regid "$2" --groups "$2,27" "$there_in/pando" --dir "$there_in/$1")
    mkdir -p "$client" "$client.mnt" && cp "$there/cluster.json" "$client/" && cp "$there_in/$1.key" "$client/client.key" &&
        chown -R "$2:$2" "$client" "$client.mnt"
}

# Names, attributes and small files need no block store.
elsewhere_names() {
    [ "$("${client_as[@]}" ls /pub | sort | xargs)" = "large small" ] && "${client_as[@]}" stat /pub/large >/dev/null &&
        [ "$("${client_as[@]}" cat /pub/small)" = small ] && "${client_as[@]}" put "$there_in/small" /pub/copy &&
        "${client_as[@]}" mv /pub/copy /pub/moved && "${client_as[@]}" rm /pub/moved && "${client_as[@]}" map >/dev/null
}

# refused COMMAND...: fails, and says where the bytes are and where they have to be.
refused() {
    local said
    said=$("$@" 2>&1) && { echo "it was done"; return 1; }
    grep -q 'cannot use' <<<"$said" && grep -q 'in a bucket' <<<"$said" || { echo "$said"; return 1; }
}

# A user without a way to the servers' folder: what needs it says so, nothing is half made, and nothing is mounted.
elsewhere_refused() {
    refused "${client_as[@]}" cat /pub/large && refused "${client_as[@]}" get /pub/large "$client/large" &&
        refused "${client_as[@]}" put "$there_in/large" /pub/other || return 1
    "${client_as[@]}" stat /pub/other >/dev/null 2>&1 && { echo "an empty file was made"; return 1; }
    refused "${client_as[@]}" mount "$client.mnt" || return 1
    "${client_as[@]}" map | grep -q "From here .*cannot be used" && ! grep -qF "$client.mnt" /proc/self/mountinfo
}

# Root on the servers' machine: the copy of cluster.json names a folder that is not there, the servers' map one that is.
elsewhere_found() {
    "${client_as[@]}" get /pub/large "$client/large" && cmp "$client/large" "$there_in/large" && "${client_as[@]}" mount "$client.mnt" || return 1
    cmp "$client.mnt/pub/large" "$there_in/large" && cp "$there_in/large" "$client.mnt/pub/more" && "${client_as[@]}" cat /pub/more | cmp - "$there_in/large"
    local code=$?
    "${client_as[@]}" umount "$client.mnt" && [ "$code" = 0 ]
}

elsewhere_down() {
    "$pando" --dir "$there" fsck --data && "$pando" --dir "$there" down >/dev/null
    local code=$?
    rm -rf "$there_in"
    return $code
}

if [ "$(id -u)" != 0 ]; then
    skip "clients elsewhere" "another user is played by root"
elif elsewhere_up; then
    elsewhere_client user 4001 || stage_failed=1
    check "a client without a block store: names and small files" elsewhere_names
    check "a client without a block store: what needs it says so" elsewhere_refused
    elsewhere_client root 0 || stage_failed=1
    check "a client in another folder: names and small files" elsewhere_names
    check "a client in another folder: bytes, and a mount" elsewhere_found
    check "fsck, and all of it ends" elsewhere_down
else
    check "a cluster for clients elsewhere" false
fi
