"""What perf saw, for scripts/flame.sh: stacks for inferno-flamegraph, and the page that says whose time it was.

    flame.py fold FOLDER OPERATION       reads OPERATION.client and OPERATION.server, what `perf script` printed, and prints stacks
    flame.py page FOLDER OPERATION...    prints docs/profile.md
"""

import collections
import re
import sys

SIDES = ("client", "server")
PARTS = ("client", "wire", "server", "store", "kernel")
# Whose time it is when one of these crates or libraries is met on the way from the innermost function outwards. The others (allocation,
# copies, hashes, codecs of records) work for whoever called them.
OWNERS = {
    "pando_net": "wire",
    "pando_wire": "wire",
    "mio": "wire",
    "pando_store": "store",
    "pando_store_rocks": "store",
    "rocksdb": "store",
    "pando_client": "client",
    "pando_server": "server",
    "pando_namespace": "server",
}
LONGEST = 70


def samples(path):
    """Stacks with the innermost frame first, each frame a symbol and where it is from."""
    stack, ours = [], False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in [*file, "\n"]:
            frame = re.match(r"\s+([0-9a-f]+) (.*) \((.*)\)$", line)
            if frame:
                if not frame[1].startswith("ffffffffffffffff"):
                    stack.append((frame[2].split("+0x")[0], frame[3].rsplit("/", 1)[-1]))
            elif line.strip():
                # A thread's name: those of RocksDB begin with its own.
                ours = not re.match(r"\s*(bash|perf|sh)\b", line)
            elif stack:
                if ours:
                    yield stack
                stack = []


def in_kernel(frame):
    return frame[1].startswith("[") and frame[1] not in ("[vdso]", "[unknown]", "[heap]", "[stack]")


def owner(stack, side):
    if in_kernel(stack[0]):
        return "kernel"
    for symbol, library in stack:
        if library.startswith("librocksdb") and side == "server":
            return "store"
        crate = re.match(r"<*&?(?:impl )?([a-z_0-9]+)::", symbol)
        whose = OWNERS.get(crate[1]) if crate else None
        # Of two equal functions the linker keeps one: a client has no store.
        if whose in ("wire", side) or (whose == "store" and side == "server"):
            return whose
    return side


def short(frame):
    """A name that can be read in a narrow box: without hash, parameters, the types of an implementation."""
    symbol, library = frame
    if symbol == "[unknown]":
        return f"[{library.strip('[]').split('.')[0]}]"
    symbol = re.sub(r"::h[0-9a-f]{16}$", "", symbol)
    symbol = re.sub(r"::<impl [^>]*(?:<[^<>]*>)?[^>]*>", "", symbol)
    symbol = re.sub(r"(?:::\{\{?closure\}?\}(?:#\d+)?)+", "", symbol)
    symbol = symbol.split("(")[0] or symbol
    symbol = symbol.replace(";", ",").replace(" ", "_")
    return symbol if len(symbol) <= LONGEST else symbol[: LONGEST - 3] + "..."


def fold(folder, operation):
    stacks = collections.Counter()
    for side in SIDES:
        for stack in samples(f"{folder}/{operation}.{side}"):
            frames = [short(frame) + ("_[k]" if in_kernel(frame) else "") for frame in reversed(stack)]
            # A future that polls another of the same name says nothing twice.
            frames = [frame for n, frame in enumerate(frames) if n == 0 or frame != frames[n - 1]]
            stacks[";".join([f"{side}_process", *frames])] += 1
    for stack, count in sorted(stacks.items()):
        print(stack, count)


def shares(folder, operation):
    counts = collections.Counter()
    for side in SIDES:
        for stack in samples(f"{folder}/{operation}.{side}"):
            counts[side, owner(stack, side)] += 1
    return counts


def row(cells):
    return f"| {' | '.join(cells)} |"


def rule(cells):
    return "|---" * cells + "|"


def page(folder, operations):
    counts = {operation: shares(folder, operation) for operation in operations}
    for operation, seen in counts.items():
        if not all(any(side == s for s, _ in seen) for side in SIDES):
            sys.exit(f"perf saw nothing of {operation} in the process of {' or '.join(SIDES)}")
    with open(f"{folder}/method", encoding="utf-8") as file:
        print(file.read(), end="")
    percent = lambda part, all_: f"{100 * part / all_:.0f} %" if part else "-"
    print("## Of both processes together\n")
    print(row(["operation", *PARTS, "samples", "graph"]))
    print(rule(len(PARTS) + 3))
    for operation, seen in counts.items():
        total = seen.total()
        parts = [percent(sum(n for (_, part), n in seen.items() if part == p), total) for p in PARTS]
        print(row([operation, *parts, str(total), f"[{operation}.svg](flame/{operation}.svg)"]))
    print("\n## Of each process\n")
    print(row(["operation", "process", *PARTS, "of both"]))
    print(rule(len(PARTS) + 3))
    for operation, seen in counts.items():
        for side in SIDES:
            mine = {part: n for (s, part), n in seen.items() if s == side}
            total = sum(mine.values())
            parts = [percent(mine.get(p, 0), total) for p in PARTS]
            print(row([operation, side, *parts, percent(total, seen.total())]))


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    if len(sys.argv) == 4 and sys.argv[1] == "fold":
        fold(*sys.argv[2:])
    elif len(sys.argv) > 3 and sys.argv[1] == "page":
        page(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)


main()
