# Servers die by kill -9 while programs run, and are started again: the programs stall and go on, and nothing differs.

# kill_servers COUNT: one after the other, each in turn; writes a line for each.
kill_servers() {
    local i
    for ((i = 0; i < $1; i++)); do
        sleep "$((1 + i % 2)).$((RANDOM % 10))"
        kill_server $((i % 4)) || return 1
        sleep 1
        "$pando" --dir "$cluster" up >"$work/up.out" 2>&1 || { cat "$work/up.out"; return 1; }
    done
}

copy_and_build() {
    rm -rf "$mnt/killed" "$mnt/c" && cp -a "$part" "$mnt/killed" && c_build && same "$part" "$mnt/killed"
}

under_kills() {
    local wanted=$1 killer rounds=0
    rm -f "$work/kills.out"
    kill_servers "$wanted" >"$work/kills.out" 2>&1 &
    killer=$!
    while [ "$rounds" -eq 0 ] || kill -0 "$killer" 2>/dev/null; do
        copy_and_build || { cat "$work/kills.out"; kill "$killer"; return 1; }
        rounds=$((rounds + 1))
    done
    wait "$killer" || { cat "$work/kills.out"; return 1; }
    cat "$work/kills.out"
    [ "$(grep -c '^killed' "$work/kills.out")" -eq "$wanted" ] && copy_and_build
}

if [ -n "$(why_missing make gcc ar)" ]; then
    skip "cp and make under kill -9" "$(why_missing make gcc ar)"
else
    declare -F c_build >/dev/null || source <(sed '/^if /,$d' scripts/mount/20-develop.sh)
    part=$work/part
    mkdir "$part"
    find "$tree/crates" -mindepth 1 -maxdepth 1 | sort | sed -n 1,25p | xargs cp -a -t "$part"
    cp -a "$tree/odd" "$part/"
    check "cp -a and make -j2 while servers are killed ${KILLS:-8} times" under_kills "${KILLS:-8}"
    check "fsck" fsck
fi
