# about: every script parses, and the examples in those of `make bench` are true
# limit: 60
source scripts/test.d/lib.sh
for file in .ci/run scripts/*.sh scripts/test.d/*.sh scripts/mount/*.sh scripts/hosts/*.sh scripts/peers/*.sh; do
    check "bash -n $file" bash -n "$file"
done
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
