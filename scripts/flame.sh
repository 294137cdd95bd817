#!/bin/bash
# Where time goes in stat, create, mkdir and readdir: one server and one client under perf. Writes a flame graph of each into docs/flame,
# and docs/profile.md, the shares of client, wire, server, store and kernel.
#
#   scripts/flame.sh
#
#   FILES=200000 (created and looked at; half as many directories)  DEPTH=16 (requests in flight)  FREQUENCY=1000 (samples a second)
#   PANDO_BIN=a program built elsewhere
#
# Needs perf (Debian: linux-perf); the kernel's own functions are seen by root only. Installs inferno into the cache of this project.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

[ $# -eq 0 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
files=${FILES:-200000} depth=${DEPTH:-16} frequency=${FREQUENCY:-1000}
operations=(create stat mkdir readdir)
version=0.12.8 # of inferno
inferno=$PANDO_CACHE/tools/inferno-$version/bin/inferno-flamegraph

for program in perf python3; do
    command -v $program >/dev/null || { echo "$program is missing" >&2; exit 1; }
done
pando=${PANDO_BIN:-}
[ -n "$pando" ] || pando=$(scripts/build.sh | tail -n 1) || exit 1
[ -x "$inferno" ] ||
    cargo install inferno --version $version --locked --quiet --bin inferno-flamegraph --root "${inferno%/bin/*}" || exit 1

work=$(mktemp -d "${TMPDIR:-/tmp}/pando-flame.XXXXXX") || exit 1
cp "$pando" "$work/pando" || exit 1
run() { "$work/pando" --dir "$work/cluster" "$@"; }
end() {
    run down >/dev/null 2>&1
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM HUP

# Stacks are unwound from copies of 32 KiB: RocksDB as Debian builds it has no frame pointers.
record=(perf record --quiet --event cpu-clock --freq "$frequency" --call-graph dwarf,32768)

# profile OPERATION COMMAND...: both sides while the client does that.
profile() {
    local operation=$1 watcher side
    shift
    "${record[@]}" --output "$work/server.data" --pid "$server" >"$work/log" 2>&1 &
    watcher=$!
    sleep 1
    "${record[@]}" --output "$work/client.data" -- "$@" >"$work/said" 2>&1 ||
        { cat "$work/said" >&2; kill -INT $watcher; echo "$operation failed" >&2; return 1; }
    kill -INT $watcher
    wait $watcher
    for side in client server; do
        perf script --no-inline --input "$work/$side.data" --fields comm,tid,ip,sym,dso >"$work/$operation.$side" 2>"$work/log" ||
            { cat "$work/log" >&2; return 1; }
    done
    rm "$work/client.data" "$work/server.data"
    echo "$operation is recorded" >&2
}

run up --servers 1 --durability async --waiting blocking >/dev/null || exit 1
server=$(tr -cd 0-9 <"$work/cluster/run/server-0.lock")
mdtest=("$work/pando" --dir "$work/cluster" bench mdtest --clients 1 --depth "$depth" --waiting blocking)
profile create "${mdtest[@]}" -F -C -n "$files" || exit 1
profile stat "${mdtest[@]}" -F -T -R -n "$files" --accesses $((3 * files)) || exit 1
profile mkdir "${mdtest[@]}" -D -C -n $((files / 2)) -d /pando-mkdir || exit 1
profile readdir bash -c 'for i in {1..40}; do "$1" --dir "$2" ls -U /pando-mdtest >/dev/null || exit; done' - "$work/pando" "$work/cluster" || exit 1

thousands() { sed ':a; s/\B[0-9]\{3\}\>/,&/; ta' <<<"$1"; }
mkdir -p docs/flame
for operation in "${operations[@]}"; do
    python3 scripts/bench/flame.py fold "$work" "$operation" >"$work/$operation.folded" &&
        "$inferno" --title "$operation: one client, one server" --countname samples --minwidth 0.3 --colors rust --hash \
            "$work/$operation.folded" | sed '/^ *\/\/ /d' >"docs/flame/$operation.svg" || exit 1 # without the comments of its script
done
cat >"$work/method" <<END
# Where time goes

Written by \`scripts/flame.sh\` (\`make flame\`). One server and one client on the loopback interface, durability \`async\`, $depth requests in flight;
both sleep while they wait, and only time on a processor is seen. create: $(thousands "$files") files in one directory; stat: those, at random, $(thousands $((3 * files))) times; mkdir: $(thousands $((files / 2)))
directories in one directory; readdir: names and kinds of the $(thousands "$files") files, by \`pando ls -U\`, 40 times. perf takes a sample of each process $frequency times a second, with its stack.

A sample is the *kernel's* if the innermost function is (sockets, sleeping and waking, page faults, writing the log). Otherwise it belongs to the innermost function that is of a
crate with an owner: \`pando_net\`, \`pando_wire\` and \`mio\` are *wire*, \`pando_store*\` and RocksDB *store*, \`pando_client\` *client*, \`pando_server\` and \`pando_namespace\`
*server*; if none is on the stack, to its process (so do the commands that ask, to the client). Allocation, copies and codecs of records are so counted for who called them, and what the compiler put into another crate's
function for that one. Shares differ by some hundredths from run to run.

END
python3 scripts/bench/flame.py page "$work" "${operations[@]}" >"$work/page" && cp "$work/page" docs/profile.md || exit 1
ls -l docs/flame | awk 'NF > 8 { print $9, $5 " bytes" }'
cat docs/profile.md
