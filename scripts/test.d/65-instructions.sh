# about: instructions per operation: not a tenth more than the baseline of this compiler
# limit: 900
#
# Half a minute. Counted is the program that the stages run; `make instructions` counts a release.
set -uo pipefail
source scripts/test.d/lib.sh

# Of a shallow clone what is there.
if git rev-parse --git-dir >/dev/null 2>&1; then
    check "each change of the baseline is a commit of its own, with a reason" python3 scripts/bench/instructions.py history
else
    skip "history of the baseline" "this is no git repository"
fi

why=$(why_missing valgrind python3)
if [ -n "$why" ]; then
    skip "instructions per operation" "$why"
    finish
fi
code=0
PANDO_PROFILE=ci scripts/instructions.sh || code=$?
if [ $code -eq 3 ]; then
    skip "instructions per operation" "no baseline for this compiler and build; the log has the lines for scripts/bench/instructions.tsv"
else
    check "instructions per operation" test $code -eq 0
fi
finish
