# Helpers for stages. A stage sources this, calls `check` or `skip`, and ends with `finish`.
#
#   check "what" command...    runs it; counts it as passed or failed
#   skip "what" "why"          counts it as skipped
#   finish                     prints the closing line and exits accordingly

stage_passed=0
stage_failed=0
stage_skipped=0

check() {
    local what=$1 begun=$SECONDS
    shift
    echo "=== $what"
    if "$@"; then
        stage_passed=$((stage_passed + 1))
        echo "--- passed in $((SECONDS - begun)) s: $what"
    else
        stage_failed=$((stage_failed + 1))
        echo "--- FAILED after $((SECONDS - begun)) s: $what"
    fi
}

skip() {
    stage_skipped=$((stage_skipped + 1))
    echo "skip: $1: $2"
}

# ci_build PACKAGE OPTION...: builds a program as the stages run it (profile `ci`), and says where it is.
ci_build() {
    cargo build --profile ci --locked --package "$@" >&2 || return 1
    echo "$CARGO_TARGET_DIR/ci/$([ "$1" = pando-cli ] && echo pando || echo "$1")"
}

# simulator_share LOG: what share of seeds and planted bugs a log of the simulator has, as lines for
# `share_line`. A bug counts that was found, by seeds or in the grid; of all that the source has.
simulator_share() {
    sed -n 's/^\([0-9]*\) seeds, [0-9]* events, .*/share: \1 seeds/p' "$1" |
        sed -e '1s/$/ of the commit/' -e '2s/$/ that ever failed/'
    local found all
    found=$(awk '/^[HG][0-9]+: [0-9]+$/ { sub(":", ""); print $1 }
        / ok$/ { for (i = 2; i < NF; i++) if ($i ~ /^[HG][0-9]+([+][HG][0-9]+)*$/) { gsub(/[+]/, "\n", $i); print $i } }' "$1" |
        sort -u | wc -l)
    all=$(grep -rohE --include='*.rs' 'plant!\([HG][0-9]+\)' crates/*/src | sort -u | wc -l)
    echo "share: $found of $all plants"
}

# share_line FOLDER: what the stages with logs there had of what could be run, in one line: their lines
# `share: ...`, and the processes that they ended by kill -9 (`killed: ...`).
share_line() {
    local shares kills
    shares=$(sed -n 's/^share: //p' "$1"/*.log 2>/dev/null | awk '!seen[$0]++ { printf "%s, ", $0 }')
    kills=$(cat "$1"/*.log 2>/dev/null | grep -c '^killed: ')
    echo "share: $shares$kills kills; \`make soak\` runs more seeds, \`make flaky\` more kills"
}

# count_tests LOG: what test programs said, as "passed failed skipped out": a test that says SKIPPED has not
# passed, `out` are tests that a filter left out.
count_tests() {
    awk '/^SKIPPED / { skipped++ }
        /^test result: / { for (i = 1; i < NF; i++) {
            if ($(i + 1) == "passed;") p += $i
            if ($(i + 1) == "failed;") f += $i
            if ($(i + 1) == "ignored;") s += $i
            if ($(i + 1) == "filtered") o += $i
        } }
        END { print p - skipped, f + 0, s + skipped, o + 0 }' "$1"
}

# show_failures LOG: what failed, again, last: the runner shows the end of a log.
show_failures() {
    echo "=== what failed"
    awk '/^     Running |^   Doc-tests / { program = $0 }
        /^---- .* stdout ----$/ { if (!shown[program]++) print program; on = 1 }
        /^failures:$/ || /^test result: / { on = 0 }
        on' "$1" | tail -n 60
    grep -E '^error' "$1" | sort | uniq | head -n 10
}

# why_no_mount: prints why this user cannot mount here; prints nothing if it can.
why_no_mount() {
    if [ ! -c /dev/fuse ]; then
        echo "there is no /dev/fuse"
    elif [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
        echo "/dev/fuse may not be opened by this user"
    elif [ "$(id -u)" != 0 ] && ! command -v fusermount3 >/dev/null; then
        echo "not root, and there is no fusermount3"
    fi
}

# why_not_root: prints why what needs root is not run; prints nothing as root.
why_not_root() {
    [ "$(id -u)" = 0 ] || echo "needs root"
}

# why_missing COMMAND...: prints which of these programs are missing; prints nothing if all are there.
why_missing() {
    local command missing=
    for command in "$@"; do
        command -v "$command" >/dev/null || [ -x "/usr/sbin/$command" ] || missing="$missing $command"
    done
    [ -z "$missing" ] || echo "missing:$missing"
}

finish() {
    echo "$stage_passed passed, $stage_failed failed, $stage_skipped skipped"
    [ "$stage_failed" -eq 0 ]
    exit
}
