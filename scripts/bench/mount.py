"""What scripts/bench-mount.sh cannot do well: how soon a mount sees another's changes, medians, and the table.

  mount.py note FILE ROUND NAME PROCESSES <FIGURES           adds a line to FILE
  mount.py seen SERVERS TIMEOUT MOUNT-A MOUNT-B              prints a line
  mount.py table MEASURED SEEN RAW KEY=VALUE...              writes RAW, prints the table
"""

import errno
import json
import os
import statistics
import sys
import time

TRIES = 20

# What a timer and a busy machine may add to a timeout.
LATE = 0.05

# What is wanted of the rate against bindfs, by operation and number of processes; and against the others, in each row.
AGAINST_BINDFS = {"create": {1: 0.4, 4: 0.5, 8: 0.5}, "stat": {1: 0.3, 4: 0.3, 8: 0.3}}
AGAINST = {"moosefs": 2.0, "cephfs": 4.0}

# Everyday programs (programs.py), whose lines are of no number of processes.
PROGRAMS = ["tar x", "cat", "cp -a", "git status", "rm -r"]

# The rows' kinds: title, the phase, whether it is of the mounts with timeout 0.
KINDS = [
    ("create", "create", False),
    ("stat, kernel-cached", "restat", False),
    ("stat, timeout 0", "stat", True),
    ("remove", "remove", False),
]


def note(path, turn, name, processes):
    figures = json.load(sys.stdin)
    line = {"round": int(turn), "system": name, "processes": int(processes), "figures": figures}
    with open(path, "a") as file:
        print(json.dumps(line), file=file)


def until(see):
    """Seconds from now until `see` is true, and how often it was not."""
    began, misses = time.monotonic(), 0
    while not see():
        misses += 1
        if time.monotonic() - began > 30:
            raise SystemExit("a change was not seen within 30 s")
        time.sleep(0.001)
    return time.monotonic() - began, misses


def exists(path):
    try:
        os.stat(path)
        return True
    except OSError as e:
        if e.errno != errno.ENOENT:
            raise
        return False


def seen(servers, timeout, a, b):
    """Mount B has just looked at a name, there or not, when mount A changes it: how long until B sees that?"""
    longest = {"create": (0, 0), "chmod": (0, 0), "remove": (0, 0)}

    def took(what, see):
        seconds, misses = until(see)
        longest[what] = (max(longest[what][0], seconds), longest[what][1] + (misses > 0))

    for i in range(TRIES):
        here, there = os.path.join(a, f"seen.{i}"), os.path.join(b, f"seen.{i}")
        if exists(there):
            raise SystemExit(f"{there} is there already")
        os.close(os.open(here, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        took("create", lambda: exists(there))
        os.stat(there)
        os.chmod(here, 0o600)
        took("chmod", lambda: os.stat(there).st_mode & 0o777 == 0o600)
        os.stat(there)
        os.unlink(here)
        took("remove", lambda: not exists(there))
    result = {what: {"longest_s": round(s, 4), "not_at_once": late} for what, (s, late) in longest.items()}
    print(json.dumps({"servers": int(servers), "timeout_s": float(timeout), "tries": TRIES, "seen": result}))


class Rates:
    """Rates by system, processes, operation and round."""

    def __init__(self, lines):
        self.all = {}
        for line in lines:
            for result in line["figures"]["results"]:
                key = (line["system"], line["processes"], result["op"])
                self.all.setdefault(key, {})[line["round"]] = result

    def systems(self):
        return {system for system, _, _ in self.all}

    def rate(self, *key):
        rounds = self.all.get(key)
        return statistics.median(r["ops_per_s"] for r in rounds.values()) if rounds else None

    def ratios(self, ours, theirs):
        """Those of turns that were near each other."""
        a, b = self.all.get(ours, {}), self.all.get(theirs, {})
        return [a[r]["ops_per_s"] / b[r]["ops_per_s"] for r in a.keys() & b.keys()]


def peer(name, phase, nocache):
    if name in ("tmpfs", "ext4"):
        return name, "stat" if phase == "restat" else phase
    # Its kernel is never told to believe anything.
    return (name if name == "cephfs" or not nocache else f"{name}-nocache"), phase


def verdict(title, phase, processes, name, ratios):
    """What is wanted of this ratio, and whether it is so."""
    if phase == "remove":
        return None
    if name == "bindfs":
        wanted = AGAINST_BINDFS["create" if phase == "create" else "stat"][processes] if processes in (1, 4, 8) else None
    else:
        wanted = AGAINST.get(name)
    # Nobody is faster than the kernel that answers for both.
    if phase == "restat" and name == "moosefs":
        wanted = None
    ratio = statistics.median(ratios)
    return None if wanted is None else {
        "row": title, "processes": processes, "against": name, "wanted": wanted, "ratio": round(ratio, 3), "least": round(min(ratios), 3),
        "most": round(max(ratios), 3), "reached": ratio >= wanted
    }


def programs(rates, systems, files, out):
    """Lines of everyday programs, and what they say."""
    found = []
    out += [
        f"Everyday programs with {files} small files, one after the other, a second after each; files a second, and Pando's ratio to each:",
        "",
        "| | servers | Pando | bindfs | ext4 | to bindfs | to ext4 |",
        "|---|---|---|---|---|---|---|",
    ]
    for program in PROGRAMS:
        for system in systems:
            ours = rates.rate(system, 0, program)
            if ours is None:
                continue
            cells, columns = [program, system[6:], f"{ours:,.0f}"], []
            for name in ("bindfs", "ext4"):
                theirs, ratios = rates.rate(name, 0, program), rates.ratios((system, 0, program), (name, 0, program))
                cells.append("-" if theirs is None else f"{theirs:,.0f}")
                columns.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
                if ratios:
                    found.append({
                        "row": program, "servers": int(system[6:]), "against": name, "ops_per_s": ours, "their_ops_per_s": theirs,
                        "ratio": round(statistics.median(ratios), 3), "least": round(min(ratios), 3), "most": round(max(ratios), 3)
                    })
            out.append("| " + " | ".join(cells + columns) + " |")
    out.append("")
    return found


def table(measured, seen_file, raw, *params):
    lines = [json.loads(line) for line in open(measured)]
    sight = [json.loads(line) for line in open(seen_file)] if os.path.exists(seen_file) else []
    rates, verdicts, out = Rates(lines), [], []
    params = dict(p.split("=", 1) for p in params)
    processes = sorted({line["processes"] for line in lines} - {0})
    ours = sorted((s for s in rates.systems() if s.startswith("pando-") and "nocache" not in s), key=lambda s: int(s[6:]))
    mounts = ours
    shown = lambda rate: "-" if rate is None else f"{rate:,.0f}"
    for system in ours:
        servers = int(system[6:])
        out += [
            f"Pando with {servers} server{'s' * (servers > 1)}, durability `async`; files a second, the middle of {params['rounds']} rounds in turns"
            f" ({params['files']} empty files in each, one directory per process), and Pando's ratio to each peer:",
            "",
            "| | processes | Pando | bindfs | MooseFS | ceph-fuse | tmpfs | ext4 | to bindfs | to MooseFS | to ceph-fuse |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for title, phase, nocache in KINDS:
            for p in processes:
                mine = (system + "-nocache" * nocache, p, phase)
                ours = rates.rate(*mine)
                cells = [title, str(p), shown(ours)]
                columns = []
                for name in ("bindfs", "moosefs", "cephfs", "tmpfs", "ext4"):
                    theirs, what = peer(name, phase, nocache)
                    rate = rates.rate(theirs, p, what)
                    cells.append(shown(rate))
                    ratios = rates.ratios(mine, (theirs, p, what))
                    if name in ("tmpfs", "ext4"):
                        continue
                    found = verdict(title, phase, p, name, ratios) if ratios else None
                    text = f"{statistics.median(ratios):.2f}" if ratios else "-"
                    if found:
                        verdicts.append({"servers": servers, **found, "ops_per_s": ours, "their_ops_per_s": rate})
                        text += f" (wanted {found['wanted']:g}: {'yes' if found['reached'] else '**no**'})"
                    columns.append(text)
                out.append("| " + " | ".join(cells + columns) + " |")
        out.append("")
    out += [
        "A kernel-cached stat is answered by the kernel on every mount with a timeout of 1 s, so there is nothing between Pando and MooseFS to be",
        "told; ceph-fuse lets the kernel believe nothing, in both kinds of stat.",
        "",
    ]
    everyday = programs(rates, mounts, params["program_files"], out)
    for s in sight:
        told = ", ".join(
            f"{what} {v['longest_s'] * 1000:.0f} ms" + (f" ({v['not_at_once']} not at the first look)" if s["timeout_s"] == 0 else "")
            for what, v in s["seen"].items()
        )
        within = all(v["longest_s"] <= s["timeout_s"] + LATE and (s["timeout_s"] > 0 or v["not_at_once"] == 0) for v in s["seen"].values())
        s["within"] = within
        out.append(
            f"Seen on another mount that had just looked, {s['servers']} server{'s' * (s['servers'] > 1)}, timeout {s['timeout_s']:g} s, the longest of"
            f" {s['tries']}: {told}; {'all' if within else '**not all**'} within the timeout"
            f" (and {LATE * 1000:.0f} ms for timers).\n"
        )
    missed = [v for v in verdicts if not v["reached"]]
    out.append(f"{len(verdicts) - len(missed)} of {len(verdicts)} wanted ratios were reached. The load of the machine before the run: {params['load']}.")
    with open(raw, "w") as file:
        json.dump({"bench": "mount", "params": params, "wanted": verdicts, "programs": everyday, "visibility": sight, "measured": lines}, file)
    print("\n".join(out))


if __name__ == "__main__":
    commands = {"note": (note, 4), "seen": (seen, 4), "table": (table, None)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        raise SystemExit(__doc__)
    command, count = commands[sys.argv[1]]
    if count is not None and len(sys.argv) != 2 + count:
        raise SystemExit(__doc__)
    command(*sys.argv[2:])
