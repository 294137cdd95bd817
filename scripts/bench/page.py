"""The page that `make bench` writes, and the file beside it."""

import json
import os
import re
import time

from measure import significant


def about(args):
    """The machine, before anything is measured."""
    memory = next(line for line in open("/proc/meminfo") if line.startswith("MemTotal:"))
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": args["commit"], "rounds": int(args["rounds"]), "files": int(args["files"]),
        "cores": len(os.sched_getaffinity(0)), "memory_gib": round(int(memory.split()[1]) / (1 << 20), 1), "kernel": re.match(r"[\d.]*\d", os.uname().release)[0],
        "architecture": os.uname().machine, "filesystem": filesystem(args["work"]), "raw": os.path.basename(args["raw"]),
        "load": " ".join(open("/proc/loadavg").read().split()[:3]),
    }


def filesystem(path):
    """The type of the filesystem on which this is."""
    device = os.stat(path).st_dev
    for line in open("/proc/self/mountinfo"):
        words = line.split()
        if words[2] == f"{os.major(device)}:{os.minor(device)}":
            return words[words.index("-") + 1]
    return "unknown"


def number(value, unit):
    """For people.

    >>> number(82812.3, "/s"), number(14.26, "us"), number(59.04, ""), number(20, ""), number(None, "us")
    ('82,812/s', '14.3 us', '59.0', '20', '-')
    """
    if value is None:
        return "-"
    space = "" if unit in ("/s", "") else " "
    digits = 1 if isinstance(value, float) and abs(value) < 1000 and unit != "/s" else 0
    return f"{value:,.{digits}f}{space}{unit}"


def bound(line):
    """What is wanted.

    >>> bound({"target": None}), bound({"target": (">=", 0.5), "compared": 3.0, "unit": "/s"})
    ('', 'at least 0.5')
    >>> bound({"target": ("<=", 64), "compared": None, "unit": "MiB"}), bound({"target": ("+-", 0.15), "compared": 1.0, "unit": ""})
    ('at most 64 MiB', '0.85 to 1.15')
    """
    if line["target"] is None:
        return ""
    sign, value = line["target"]
    if sign == "+-":
        return f"{1 - value:g} to {1 + value:g}"
    shown = f"{value:g}" if line["compared"] is not None else number(value, line["unit"])
    return f"{'at most' if sign == '<=' else 'at least'} {shown}"


def cells(line):
    ratio = line["ratio"]
    against, compared = line["against"], line["compared"]
    if against is None and ratio:
        against, compared = "the target", line["target"][1]
    verdict = {None: "", True: "reached", False: "**missed**"}[line["reached"]]
    return [
        line["what"], number(line["measured"], line["unit"]), against or "", number(compared, line["unit"]) if against else "",
        f"{ratio[0]:.2f}" if ratio else "", f"{ratio[1]:.2f} to {ratio[2]:.2f}" if ratio else "", bound(line), verdict,
    ]


def kept(raw):
    """The sections of a page written before, each with the run that it is of."""
    with open(raw) as file:
        before = json.load(file)
    return {section["name"]: {"run": before["about"], **section} for section in before["sections"]}


def differs(now, before):
    """In what two runs differ so that their figures cannot stand on one page.

    >>> same = {"rounds": 11, "files": 1000000, "cores": 2, "kernel": "6.1", "architecture": "x86_64", "filesystem": "ext4"}
    >>> differs(same, same), differs({**same, "files": 20000}, same)
    ('', 'files')
    """
    return ", ".join(key for key in ("rounds", "files", "cores", "kernel", "architecture", "filesystem") if now[key] != before[key])


NOTES = {
    "ceilings": "Servers wait as clients do. `echo` sends 64 bytes there and back, with threads of one process on both sides; a server that never sleeps is stopped"
    " while that is measured, here and below. Where both sides sleep, much depends on whether the kernel wakes them on one core or on two, which a busy machine changes.",
    "single": "{files:,} files in 1,111 directories, looked at at random, others in each round; creates go through all directories in turn. The store alone has"
    " {store:,} files: how many there are does not change what its own create takes, which is the write of a batch, without what a server reads before. ext4 is asked"
    " by system calls, names relative to an open directory: open with `O_CREAT | O_EXCL`, and close; by a process of its own, while the server is stopped.",
    "several": "{files:,} files in 111 directories; each client has 64 requests under way. Creates go through all directories in turn; those in one directory concern one server only. All sleep when they wait. The store's processor time has RocksDB's own threads in it, as the servers' has.",
    "synced": "Each client has 64 requests under way, in 111 directories, or in one, which one server has. Operations for each sync of a server's log, as servers count both.",
    "listing": "{files:,} entries. Before each listing the servers are restarted: their caches are empty, the kernel's are not. Growth is the most memory that a process"
    " had while listing, beyond what it had before; of all servers together.",
    "directory": "1,000 creates, one at a time, in each directory in turn; they are removed again.",
    "space": "{files:,} empty files in 1,111 directories, on four servers; counted once. Bytes are those of the servers' whole folders, logs included, as allocated;"
    " divided by the number of files; each server allocates its log ahead. Compacted is each stopped server's store, by `pando server --compact`; after that all files are found again.",
    "trees": "{files:,} empty files, and the time of the whole command; made anew for each removal, and therefore in fewer rounds: {few}.",
    "mix": "`pando bench mix`, rounds: {few}. A mix has renames, listings and directories in it.",
    "mount": "`scripts/bench-mount.sh`: through system calls, empty files, one directory for each process. What is the same and what is not between these filesystems"
    " stands in [benchmarks.md](benchmarks.md). A kernel-cached stat on MooseFS and all removals have no target.",
}

HEAD = ["", "measured", "compared with", "which has", "ratio", "smallest and largest", "target", ""]


def judged(found):
    return [line["reached"] for section in found["sections"] for line in section["rows"] if line["reached"] is not None]


def summary(found):
    verdicts = judged(found)
    text = f"{sum(verdicts)} of {len(verdicts)} targets reached, {len(verdicts) - sum(verdicts)} missed"
    for kind, words in (("failed", "failed"), ("missing", "not all measured")):
        names = [section["name"] for section in found["sections"] if section[kind]]
        text += f"; {words}: {', '.join(names)}" if names else ""
    return text


def text(found):
    a = found["about"]
    numbers = {"files": a["files"], "store": min(100_000, a["files"]), "few": min(a["rounds"], 3)}
    commit, _, changed = a["commit"].partition(" ")
    program = "" if a["program"] in (None, "unknown", commit) else f" (the program is of {a['program'][:12]})"
    out = [
        "# Performance",
        "",
        "Pando beside the limits of the machine and beside other filesystems, in one run. This page is written by `make bench`; what it is made of, value by value, is in",
        f"[{a['raw']}]({a['raw']}). Figures depend on the machine and the day; the ratios, of things measured in turns, mean something.",
        "",
        "    make bench                                        # all of it, as root; half an hour on two cores that have nothing else to do",
        "    ROUNDS=1 FILES=20000 scripts/bench.sh trial.md    # whether it works; its figures mean nothing",
        f"    BENCH_ONLY='single|listing' scripts/bench.sh some.md    # only these sections; there are {', '.join(NOTES)}",
        "    BENCH_KEEP=yes BENCH_ONLY=mix make bench          # one section anew, the others as they stand here; each says of which run it is",
        "",
        f"This run: {a['date']}, commit {commit[:12]}{' ' + changed if changed else ''}{program}; {a['cores']} cores ({a['architecture']}), {a['memory_gib']:g} GiB of memory, Linux {a['kernel']},"
        f" stores on {a['filesystem']}; load before: {a['load']}; {a['rounds']} rounds, {a['files']:,} files.",
        "",
        f"**{summary(found)}.**" + (f" Left out of this run: {', '.join(a['left_out'])}." if a["left_out"] else ""),
        "",
        "How it is measured: servers, clients and what they are compared with share this machine. What is compared takes turns, each for about a second, in an order that shifts"
        " and turns round from one round to the next; a first round is not counted. A ratio is that of two values of the same round, and the middle of all rounds' ratios is what is"
        " judged; the smallest and the largest stand beside it. Measured values are the middle of theirs. What is compared with its target alone has its ratio to that."
        " Ceilings have the servers, clients, depth and way of waiting of what is divided by them. Durability is `async` where nothing else is said.",
    ]
    for section in found["sections"]:
        out += ["", f"## {section['title']}", "", NOTES[section["name"]].format(**numbers)]
        for kind, word in (("failed", "**Failed**"), ("missing", "Not measured")):
            if section[kind]:
                out += ["", f"{word}: {section[kind]}."]
        if section["rows"]:
            out += ["", "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
            out += ["| " + " | ".join(cells(line)) + " |" for line in section["rows"]]
        run = section.get("run")
        of = f", of another run: {run['date']}, commit {run['commit'][:12]}, load before: {run['load']}" if run else ""
        out += ["", f"({section['name']}: {section['seconds']} s{of})"]
    return "\n".join(out) + "\n"


def raw(found):
    """Four digits of each, a line for each row."""
    short = lambda value: [short(v) for v in value] if isinstance(value, list) else significant(value) if isinstance(value, float) else value
    out = ['{"bench": "all", "about": ' + json.dumps(found["about"]) + ', "sections": [']
    for n, section in enumerate(found["sections"]):
        rows = []
        for line in section["rows"]:
            plain = {key: short(value) for key, value in line.items() if key != "values"}
            values = {key: short(value) for key, value in line.get("values", {}).items() if value is not None}
            rows.append(json.dumps({**plain, "values": values}))
        rest = {key: value for key, value in section.items() if key != "rows"}
        out.append(json.dumps(rest)[:-1] + ', "rows": [\n' + ",\n".join(rows) + "\n]}" + "," * (n + 1 < len(found["sections"])))
    return "\n".join(out) + "\n]}\n"
