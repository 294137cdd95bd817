#!/bin/bash
# `make fuzz`: coverage-guided fuzzing of everything that decodes (docs/testing.md).
#
#   scripts/fuzz.sh                        every target, TIME seconds each (default 60)
#   scripts/fuzz.sh --total N              until each target had a million executions and all together N
#   scripts/fuzz.sh --minimize             keeps in crates/fuzz/corpus what is needed to reach what was reached
#   scripts/fuzz.sh --sum                  how many executions each target had so far
#   ... --built                            with the last build, whatever changed since
#   ... TARGET...                          only these
#
# What fails is kept in ~/.cache/pando/fuzz/found. Executions of this machine are summed in ~/.cache/pando/fuzz/executions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

mode=time total=0 build=yes targets=()
while [ $# -gt 0 ]; do
    case $1 in
        --total) mode=total total=${2:?}; shift 2 ;;
        --minimize) mode=minimize; shift ;;
        --sum) mode=sum; shift ;;
        --built) build=no; shift ;;
        -*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
        *) targets+=("$1"); shift ;;
    esac
done
seconds=${TIME:-60}
each=1000000 # executions a target must have in a run with --total

work=$PANDO_CACHE/fuzz
tally=$work/executions
mkdir -p "$work/found" "$work/logs"
touch "$tally"
[ $build = no ] || cargo build --quiet --release --locked --package pando-fuzz --bin pando-fuzz
tool=$CARGO_TARGET_DIR/release/pando-fuzz
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <("$tool" targets | cut -d ' ' -f 1)

executions() { # TARGET, or nothing for all
    awk -v of="${1:-}" 'of == "" || $1 == of { n += $2 } END { print n + 0 }' "$tally"
}

summary() {
    local target
    for target in "${targets[@]}"; do
        printf '%-14s %12d\n' "$target" "$(executions "$target")"
    done
    printf '%-14s %12d\n' 'all targets' "$(executions)"
}
if [ $mode = sum ]; then
    summary
    exit
fi

# The instrumentation that libFuzzer reads is a pass of the stable compiler: no nightly is needed. With checks on, because
# an overflow is a finding; in a folder of its own, because the flags are its own.
build_fuzzer() {
    local host flags option
    if ! command -v g++ >/dev/null; then
        echo "fuzzing needs a C++ compiler for libFuzzer: install g++" >&2
        exit 1
    fi
    host=$(rustc -vV | sed -n 's/^host: //p')
    flags='-Cpasses=sancov-module -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks'
    for option in -sanitizer-coverage-level=4 -sanitizer-coverage-inline-8bit-counters -sanitizer-coverage-pc-table \
        -sanitizer-coverage-trace-compares -simplifycfg-branch-fold-threshold=0; do
        flags="$flags -Cllvm-args=$option"
    done
    RUSTFLAGS="--cfg fuzzing $flags" CARGO_TARGET_DIR=$work/target cargo build --release --locked \
        --package pando-fuzz --bin pando-libfuzzer --features libfuzzer --target "$host"
    # A copy: a later build must not change it under a run.
    rm -f "$fuzzer"
    cp "$work/target/$host/release/pando-libfuzzer" "$fuzzer"
}
fuzzer=$work/pando-libfuzzer
[ $build = no ] || build_fuzzer

longest() { "$tool" targets | awk -v t="$1" '$1 == t { print $2 }'; }

# What is known about a target: its seeds, the committed corpus, what earlier runs here found.
gather() { # TARGET
    mkdir -p "$work/corpus/$1"
    "$tool" seeds "$1" "$work/corpus/$1"
    [ ! -f "crates/fuzz/corpus/$1.pack" ] || "$tool" unpack "crates/fuzz/corpus/$1.pack" "$work/corpus/$1"
}

fuzz() { # TARGET LIMIT
    local target=$1 log=$work/logs/$1 code=0 n
    gather "$target"
    PANDO_FUZZ_TARGET=$target "$fuzzer" "$work/corpus/$target" "$2" -max_len="$(longest "$target")" -timeout=20 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$work/found/$target." >"$log" 2>&1 || code=$?
    n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$target ${n:-0}" >>"$tally"
    printf '%-14s %12d executions, %s\n' "$target" "${n:-0}" \
        "$(grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$log" | tail -n 1)"
    if [ $code -ne 0 ]; then
        grep -a -A 6 -E 'panicked at|ERROR: libFuzzer' "$log" | head -n 20
        echo "$target FAILED; log: $log; input: $(sed -n 's/.*Test unit written to //p' "$log")"
        echo "Fix it, and add the input as crates/fuzz/regressions/$target.what-it-was"
        return 1
    fi
}

failed=0
case $mode in
    time)
        for target in "${targets[@]}"; do
            fuzz "$target" -max_total_time="$seconds" || failed=1
        done
        ;;
    total)
        for target in "${targets[@]}"; do
            left=$((each - $(executions "$target")))
            [ $left -le 0 ] || fuzz "$target" -runs=$left || failed=1
        done
        while [ $failed -eq 0 ] && [ "$(executions)" -lt "$total" ]; do
            for target in "${targets[@]}"; do
                [ "$(executions)" -ge "$total" ] || fuzz "$target" -max_total_time="$seconds" || failed=1
            done
        done
        ;;
    minimize)
        for target in "${targets[@]}"; do
            gather "$target"
            rm -rf "$work/least"
            mkdir "$work/least"
            PANDO_FUZZ_TARGET=$target "$fuzzer" -set_cover_merge=1 -max_len="$(longest "$target")" "$work/least" \
                "$work/corpus/$target" >"$work/logs/$target.merge" 2>&1
            "$tool" pack "$work/least" "crates/fuzz/corpus/$target.pack"
            # From here on the least is what there is.
            rm -rf "$work/corpus/$target"
            printf '%-14s %6d inputs, %8d bytes\n' "$target" "$(find "$work/least" -type f | wc -l)" \
                "$(stat -c %s "crates/fuzz/corpus/$target.pack")"
        done
        ;;
esac
[ $mode = minimize ] || summary
exit $failed
