#!/bin/bash
# `make test`: runs the stages in scripts/test.d in order and sums what they report.
#
#   scripts/test.sh                        all stages, once
#   scripts/test.sh --only 'process|mount' the stages whose file names match this regular expression
#   scripts/test.sh --repeat N             all that N times, until something fails
#   scripts/test.sh --list                 the stages, their time limits, what they are for
#
# A stage is a file scripts/test.d/NN-name.sh (see docs/testing.md): it prints its log, ends with a line
# `N passed, N failed, N skipped`, and exits non-zero if anything failed. In its head stand `# about: ...` and
# `# limit: seconds`. It runs in the root of the clone with scripts/env.sh loaded. One with `# beside: NN-name` runs at the
# same time as that stage.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh
source scripts/test.d/lib.sh

only=. repeat=1 list=no
while [ $# -gt 0 ]; do
    case $1 in
        --only) only=${2:?}; shift 2 ;;
        --repeat) repeat=${2:?}; shift 2 ;;
        --list) list=yes; shift ;;
        *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

total_limit=${PANDO_TEST_LIMIT:-3600} # seconds for everything
started=$SECONDS
logs=$PANDO_CACHE/logs/$(date +%Y%m%d-%H%M%S)-$$
passed=0 failed=0 skipped=0

stage_field() { # FILE FIELD DEFAULT
    local value
    value=$(sed -n "s/^# $2: *//p" "$1" | head -n 1)
    echo "${value:-$3}"
}

stages=()
for file in scripts/test.d/[0-9]*-*.sh; do
    name=$(basename "$file" .sh)
    [[ $name =~ $only ]] && stages+=("$file")
done
if [ ${#stages[@]} -eq 0 ]; then
    echo "no stage matches '$only'; there are: $(basename -s .sh -a scripts/test.d/[0-9]*-*.sh | tr '\n' ' ')" >&2
    exit 2
fi
if [ $list = yes ]; then
    for file in "${stages[@]}"; do
        printf '%-20s %5s s  %s\n' "$(basename "$file" .sh)" "$(stage_field "$file" limit 600)" "$(stage_field "$file" about '')"
    done
    exit 0
fi

declare -A running=() begun=() limits=() # of each stage that runs: its process, when it began, its time limit

stop() {
    local pid
    # Each stage leads a process group of its own; end exactly those.
    for pid in "${running[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null
    done
    echo "interrupted; logs: $logs"
    exit 130
}
trap stop INT TERM

# counts LOG: the last line in the contract's form, as three numbers.
counts() {
    grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$1" | tail -n 1 | tr -cs '0-9\n' ' '
}

# begin_stage FILE LOG: starts one stage.
begin_stage() {
    local file=$1 log=$2 limit left
    limit=$(stage_field "$file" limit 600)
    left=$((total_limit - (SECONDS - started)))
    [ "$limit" -le "$left" ] || limit=$left
    limits[$file]=$limit begun[$file]=$SECONDS
    [ "$limit" -gt 0 ] || return
    [ ! -t 1 ] || printf '       %-22s ...\r' "$(basename "$file" .sh)"
    # setsid: a group of its own, so that a time limit ends whatever the stage started too.
    TERM=dumb CARGO_TERM_COLOR=never \
        setsid timeout --kill-after=20 "$limit" bash "$file" >"$log" 2>&1 </dev/null &
    running[$file]=$!
}

# end_stage FILE LOG: waits for a stage, prints its line, adds to the sums.
end_stage() {
    local file=$1 log=$2 name code p f s took verdict why=
    name=$(basename "$file" .sh)
    if [ "${limits[$file]}" -le 0 ]; then
        failed=$((failed + 1))
        printf '%-6s %-22s not run: the %s s for all stages are spent\n' FAIL "$name" "$total_limit"
        return
    fi
    wait "${running[$file]}"
    code=$?
    took=$((SECONDS - begun[$file]))
    # What a stage leaves running would disturb the next one.
    kill -KILL -- "-${running[$file]}" 2>/dev/null
    unset "running[$file]"
    p=0 f=0 s=0
    read -r p f s _ <<<"$(counts "$log")" || true
    p=${p:-0} f=${f:-0} s=${s:-0}
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        why="stopped after $took s, its limit"
        f=$((f + 1))
    elif [ -z "$(counts "$log")" ]; then
        why="ended without its closing line (exit code $code)"
        f=$((f + 1))
    elif [ "$code" -ne 0 ] && [ "$f" -eq 0 ]; then
        why="exit code $code although it counts no failure"
        f=1
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    verdict=ok
    [ "$((p + f))" -gt 0 ] || verdict=skip
    [ "$f" -eq 0 ] || verdict=FAIL
    printf '%-6s %-22s %5s s   %s passed, %s failed, %s skipped%s\n' \
        "$verdict" "$name" "$took" "$p" "$f" "$s" "${why:+; $why}"
    sed -n 's/^skip: /       skipped: /p' "$log" | sort | uniq | head -n 10
    if [ "$f" -ne 0 ]; then
        echo "       --- the end of $log"
        tail -n "${PANDO_TEST_TAIL:-70}" "$log" | sed 's/^/       | /'
    fi
}

# Stages that run beside another which is run, too: by the name of that.
declare -A beside=()
for file in "${stages[@]}"; do
    other=scripts/test.d/$(stage_field "$file" beside '').sh
    [[ " ${stages[*]} " != *" $other "* ]] || beside[$other]=$file
done

# run_all SUFFIX: every stage once.
run_all() {
    local file other
    for file in "${stages[@]}"; do
        [[ " ${beside[*]} " != *" $file "* ]] || continue
        other=${beside[$file]:-}
        [ -z "$other" ] || begin_stage "$other" "$(log_of "$other" "$1")"
        begin_stage "$file" "$(log_of "$file" "$1")"
        end_stage "$file" "$(log_of "$file" "$1")"
        [ -z "$other" ] || end_stage "$other" "$(log_of "$other" "$1")"
    done
}

log_of() { # FILE SUFFIX
    echo "$logs/$(basename "$1" .sh)$2.log"
}

mkdir -p "$logs" || exit 1
echo "commit $PANDO_CI_COMMIT, $(nproc) cores, $(uname -r), user $(id -un); logs: $logs"
if ! scripts/setup.sh; then
    echo "what building needs could not be installed"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
scripts/setup.sh --test || echo "going on without; what needs these programs is counted as skipped"
source scripts/env.sh # again: the compiler may be new
# What is built once gains nothing by what an incremental build writes down for the next.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

for ((round = 1; round <= repeat; round++)); do
    [ "$repeat" -eq 1 ] || echo "round $round of $repeat"
    run_all "$([ "$repeat" -eq 1 ] || echo ".$round")"
    if [ "$failed" -ne 0 ] && [ "$round" -lt "$repeat" ]; then
        echo "stopped after round $round"
        break
    fi
done

# Old logs are of no use; those of the last twenty runs are kept.
ls -1d "$PANDO_CACHE"/logs/*/ 2>/dev/null | head -n -20 | xargs -r rm -rf --

echo "took $((SECONDS - started)) s; logs: $logs"
share_line "$logs"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
