"""Instructions per operation, for scripts/instructions.sh: reads what callgrind wrote, compares it with the baseline.

    instructions.py compare FOLDER COMPILER BUILD           prints a table; exits 1 above the limit, 3 without a baseline
    instructions.py record FOLDER COMPILER BUILD REASON     makes what was counted the baseline of this compiler and build
    instructions.py top FOLDER COUNT                        of each operation and side the functions with most instructions
    instructions.py history                                 exits 1 if a commit changed the baseline as none may

FOLDER has `said`, what `pando bench counted --json` printed, and callgrind's files `out.N-THREAD`.
"""

import collections
import glob
import json
import re
import shlex
import subprocess
import sys

BASELINE = "scripts/bench/instructions.tsv"
LIMIT = 1.10
HEAD = ["compiler", "build", "operation", "side", "instructions", "reason"]


def windows(folder):
    """{(operation, side): (operations, file)}: each thread's second, fourth, ... file is what was done between two marks."""
    with open(f"{folder}/said", encoding="utf-8") as said:
        kinds = [json.loads(line) for line in said if line.startswith("{")]
    threads = collections.defaultdict(list)
    for path in glob.glob(f"{folder}/out.*-*"):
        found = re.search(r"/out\.(\d+)-(\d+)$", path)
        if found:
            threads[int(found[2])].append((int(found[1]), path))
    # Threads that never called the mark have no numbered file. The client is the main thread.
    if len(threads) != 2 or 1 not in threads or not kinds:
        sys.exit(f"callgrind saw marks of the threads {sorted(threads)}, and operations {kinds}: is counted::mark still called?")
    found = {}
    for thread, files in threads.items():
        between = [path for _, path in sorted(files)][1::2]
        for kind, path in zip(kinds, between):
            found[kind["op"], "client" if thread == 1 else "server"] = (kind["ops"], path)
    if len(found) != 2 * len(kinds):
        sys.exit(f"of {len(kinds)} operations callgrind counted only {sorted(found)}")
    return found


def counted(folder):
    """{(operation, side): instructions of one}"""
    result = {}
    for what, (operations, path) in windows(folder).items():
        with open(path, encoding="utf-8", errors="replace") as file:
            totals = re.search(r"^totals: (\d+)", file.read(), re.MULTILINE)
        if not totals:
            sys.exit(f"{path} has no totals")
        result[what] = round(int(totals[1]) / operations)
    return result


def by_function(path):
    """Instructions of each function itself."""
    names, cost, inside, of_call = {}, collections.Counter(), None, False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            named = re.match(r"(c?)fn=\((\d+)\)(?: (.*))?", line)
            if named:
                if named[3]:
                    names[named[2]] = named[3]
                if not named[1]:
                    inside = named[2]
            elif line.startswith("calls="):
                of_call = True
            elif inside and re.match(r"[-+*\d]", line):
                # After `calls=` comes what the called function cost.
                if not of_call:
                    cost[names[inside]] += int(line.split()[1])
                of_call = False
    return cost


def baseline():
    """Lines of the file that are comments, and the others as {(compiler, build, operation, side): (instructions, reason)}."""
    comments, lines = [], {}
    with open(BASELINE, encoding="utf-8") as file:
        for line in file.read().splitlines():
            fields = line.split("\t")
            if line.startswith("#") or fields == HEAD:
                comments.append(line)
            elif len(fields) == len(HEAD) and fields[4].isdigit() and fields[5].strip():
                lines[tuple(fields[:4])] = (int(fields[4]), fields[5])
            else:
                sys.exit(f"{BASELINE}: not {', '.join(HEAD)} between tabs: {line!r}")
    return comments, lines


def text(key, value):
    return "\t".join([*key, str(value[0]), value[1]])


def compare(folder, compiler, build):
    now = counted(folder)
    _, known = baseline()
    mine = {key[2:]: value[0] for key, value in known.items() if key[:2] == (compiler, build)}
    print(f"{compiler}, {build}: instructions of one operation")
    print(f"{'operation':<10} {'side':<7} {'now':>9} {'baseline':>9}")
    above, below = [], []
    for what, count in now.items():
        was = mine.get(what)
        print(f"{what[0]:<10} {what[1]:<7} {count:>9} {was or '-':>9} {f'{count / was - 1:+.1%}' if was else ''}")
        if was and count > was * LIMIT:
            above.append(f"{what[0]} of the {what[1]}: {count} instructions instead of {was}, {count / was - 1:+.1%}")
        elif was and count * LIMIT < was:
            below.append(" of the ".join(what))
    if above:
        print(f"\nMore than {LIMIT - 1:.0%} above the baseline ({BASELINE}):", *above, sep="\n  ")
        print("Find what was added: `scripts/instructions.sh --top 20` here and before the change. If it must be so, commit the change, then")
        print("`scripts/instructions.sh --record 'why it is worth it'`, and commit that file alone, with the reason in the message.")
        return 1
    if below:
        print(f"\nFar below the baseline: {', '.join(below)}. Make that the baseline: scripts/instructions.sh --record 'what became cheaper'")
    missing = [what for what in now if what not in mine]
    if missing:
        print(f"\nNot in {BASELINE}; `scripts/instructions.sh --record 'first count'` adds these lines:")
        for what in missing:
            print(text((compiler, build, *what), (now[what], "first count")))
        return 3
    return 0


def record(folder, compiler, build, reason):
    reason = " ".join(reason.split())
    if len(reason) < 10:
        sys.exit("say why, in a few words")
    now = counted(folder)
    comments, known = baseline()
    kept = {key: value for key, value in known.items() if key[:2] != (compiler, build)}
    kept.update({(compiler, build, *what): (count, reason) for what, count in now.items()})
    with open(BASELINE, "w", encoding="utf-8") as file:
        for line in comments + [text(key, kept[key]) for key in sorted(kept)]:
            print(line, file=file)
    print(f"{BASELINE} is written; commit it alone, with the reason in the message:\n")
    print(f"    git commit {BASELINE} -m 'Instructions per operation: what changed' -m {shlex.quote(reason)}")


def top(folder, count):
    for (operation, side), (operations, path) in windows(folder).items():
        cost = by_function(path)
        print(f"\n{operation}, {side}: {round(cost.total() / operations)} instructions")
        for name, instructions in cost.most_common(int(count)):
            print(f"{round(instructions / operations):>8}  {instructions / cost.total():>5.1%}  {name[:110]}")


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def history():
    """Every commit that changes the baseline changes nothing else, and says why below its first line. Only the one that adds it is free
    to do what it likes, and merges are what they join."""
    bad = []
    for commit in git("log", "--no-merges", "--diff-filter=MDT", "--format=%H", "--", BASELINE).split():
        files = git("show", "--format=", "--name-only", commit).split("\n")
        others = [file for file in files if file and file != BASELINE]
        message = git("show", "--no-patch", "--format=%b", commit)
        reason = [line for line in message.splitlines() if not re.match(r"[A-Z][A-Za-z-]*-[Bb]y: ", line)]
        if others:
            bad.append(f"{commit[:12]} changes {BASELINE} and also {', '.join(others[:3])}: a baseline changes by itself")
        if len(" ".join(reason).strip()) < 10:
            bad.append(f"{commit[:12]} changes {BASELINE}, and its message gives no reason below the first line")
    if bad:
        print(*bad, sep="\n")
    return 1 if bad else 0


def main():
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
    commands = {"compare": compare, "record": record, "top": top, "history": history}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    return commands[sys.argv[1]](*sys.argv[2:])


sys.exit(main())
