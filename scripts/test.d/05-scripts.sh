# about: every script parses, and the examples in those of `make bench` are true
# limit: 60
source scripts/test.d/lib.sh
for file in .ci/run scripts/*.sh scripts/test.d/*.sh scripts/mount/*.sh scripts/hosts/*.sh scripts/peers/*.sh; do
    check "bash -n $file" bash -n "$file"
done

# What a run with such logs says of itself.
share_is_counted() (
    dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
    none="share: 0 kills; \`make soak\` runs more seeds, \`make flaky\` more kills"
    [ "$(share_line "$dir")" = "$none" ] || return 1
    printf '%s\n' "300 seeds, 5 events, 2 operations" "57 seeds, 5 events, 2 operations" "300 of 300 seeds, 2 s" \
        "H44: 3" "H45: not found" "H46: 1" "frame   no such    G44+H1  BadHandle  ok" "frame   gained      G45   NOT STOPPED" >"$dir/sim"
    simulator_share "$dir/sim" >"$dir/50-sim.log"
    all=$(grep -rohE --include='*.rs' 'plant!\([HG][0-9]+\)' crates/*/src | sort -u | wc -l)
    printf 'killed: server %s\n' 0 1 2 >"$dir/55-process.log"
    echo "has killed: nothing" >"$dir/60-mount.log"
    line=$(share_line "$dir")
    echo "it says $line"
    [ "$all" -gt 100 ] && [ "$line" = "share: 300 seeds of the commit, 57 seeds that ever failed, 4 of $all plants, ${none/#share: 0/3}" ]
)
check "the share of a run is counted from its logs" share_is_counted

why=$(why_missing python3)
if [ -n "$why" ]; then
    skip "scripts of python" "$why"
else
    for file in scripts/bench/*.py; do
        check "python3 parses $file" python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file"
    done
    for name in measure page; do
        check "examples in scripts/bench/$name.py" env -C scripts/bench PYTHONDONTWRITEBYTECODE=1 python3 -m doctest "$name.py"
    done
fi
finish
