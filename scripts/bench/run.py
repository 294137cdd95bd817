"""`make bench`: measures section by section, writes the page and what it is made of. scripts/bench.sh starts it, and cleans up after it.

  run.py KEY=VALUE...      pando work rounds files only keep ext4 page raw commit
"""

import json
import os
import re
import signal
import sys
import time

import operations
import page
import trees
from measure import Bench, Failed, Missing, row, run_aloud, say

PEERS = {"bindfs": "bindfs", "ext4": "ext4", "moosefs": "MooseFS", "cephfs": "ceph-fuse"}


def mount(bench):
    """What scripts/bench-mount.sh found."""
    if os.geteuid() != 0:
        raise Missing("mounts of other filesystems need root")
    table = os.path.join(bench.work, "mount.md")
    environment = {**os.environ, "ROUNDS": str(bench.rounds), "PANDO_BIN": bench.pando, "AT": bench.work}
    status, last = run_aloud(["scripts/bench-mount.sh", table], environment)
    try:
        with open(f"{table[:-3]}.json") as file:
            found = json.load(file)
    except ValueError:
        raise Failed(f"scripts/bench-mount.sh ended with status {status}: {' '.join(last)}") from None
    rows = []
    for w in found["wanted"]:
        many = f"{w['servers']} server{'s' * (w['servers'] > 1)}, {w['processes']} process{'es' * (w['processes'] > 1)}"
        rows.append({
            "what": f"{w['row']}, {many}, files", "measured": w["ops_per_s"], "unit": "/s", "against": PEERS[w["against"]],
            "compared": w["their_ops_per_s"], "ratio": [w["ratio"], w["least"], w["most"]], "target": [">=", w["wanted"]], "reached": w["reached"],
        })
    for p in found["programs"]:
        rows.append({
            "what": f"`{p['row']}` of many small files, {p['servers']} server{'s' * (p['servers'] > 1)}", "measured": p["ops_per_s"], "unit": "/s",
            "against": PEERS[p["against"]], "compared": p["their_ops_per_s"], "ratio": [p["ratio"], p["least"], p["most"]], "target": None,
            "reached": None,
        })
    for s in found["visibility"]:
        where = f"{s['servers']} server{'s' * (s['servers'] > 1)}, timeout {s['timeout_s']:g} s"
        changes = s["seen"].values()
        longest = max(change["longest_s"] for change in changes) * 1000
        # A timer may be late, and the machine busy.
        rows.append(row(f"until another mount sees a change, the longest, {where}", [longest], "ms", ("<=", s["timeout_s"] * 1000 + 50)))
        if s["timeout_s"] == 0:
            late = sum(change["not_at_once"] for change in changes)
            rows.append(row(f"changes not seen at the first look, {where}", [late], "", ("<=", 0)))
    if status != 0:
        raise Failed(f"not all could be measured: {' '.join(last)}", rows)
    return rows


# Name, title, what is measured.
SECTIONS = [
    ("ceilings", "An empty request, against the network alone", operations.ceilings),
    ("single", "One operation at a time: 1 server, 1 client, `async`", operations.single),
    ("several", "Many at a time: 4 servers, 8 clients, depth 64, `async`", operations.several),
    ("synced", "Many at a time: 4 servers, 8 clients, depth 64, `sync`", operations.synced),
    ("listing", "Listing one directory, cold: 4 servers, 1 client", trees.listing),
    ("directory", "Create in small and large directories: 1 server, 1 client, polling", trees.directory),
    ("space", "Space on disk and in memory", trees.space),
    ("trees", "Whole trees from the command line, servers just restarted", trees.trees),
    ("mix", "Mixes of operations: 4 servers, 8 clients, depth 64", trees.mix),
    ("mount", "Mounted, against other filesystems", mount),
]


def interrupted(number, _):
    # What is being cleaned up is not to be interrupted again.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def measure(bench, name, title, work):
    section = {"name": name, "title": title, "rows": [], "failed": None, "missing": None}
    say(f"{name} ...")
    # What the section before has left to be written is not for this one to wait for.
    os.sync()
    began = time.monotonic()
    try:
        section["rows"] = work(bench)
    except Missing as why:
        section["missing"] = str(why)
    except Failed as why:
        section["failed"] = str(why.args[0])
        section["rows"] = why.args[1] if len(why.args) > 1 else []
    except Exception as why:  # whatever it is, the other sections go on
        section["failed"] = f"{type(why).__name__}: {why}"
    for text in ("failed", "missing"):
        if section[text]:
            section[text] = section[text].replace(bench.work, "WORK")
            say(f"{name} {text}: {section[text]}")
    section["seconds"] = round(time.monotonic() - began)
    reached = [line["reached"] for line in section["rows"] if line["reached"] is not None]
    say(f"{name}: {sum(reached)} of {len(reached)} targets reached, {section['seconds']} s")
    return section


def main():
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, interrupted)
    args = dict(word.split("=", 1) for word in sys.argv[1:])
    only = re.compile(f"^({args['only'] or '.*'})$")
    chosen = [section for section in SECTIONS if only.match(section[0])]
    if not chosen:
        raise SystemExit(f"no section matches {args['only']}; there are: {' '.join(name for name, _, _ in SECTIONS)}")
    bench = Bench(args["pando"], args["work"], int(args["rounds"]), int(args["files"]), args["ext4"])
    about = page.about(args)
    kept = page.kept(args["raw"]) if args["keep"] else {}
    for section in kept.values():
        if differs := page.differs(about, section["run"]):
            raise SystemExit(f"what stands on the page is of a run with other {differs}: its sections cannot be kept beside this one")
    sections = [measure(bench, *section) for section in chosen]
    if not bench.ext4:
        for section in sections:
            if section["name"] == "single":
                section["missing"] = "create on ext4: it needs root, to mount it" if os.geteuid() else None
                section["failed"] = section["failed"] or (None if os.geteuid() else "create on ext4: it could not be mounted")
    about["program"] = bench.commit
    measured = {section["name"]: section for section in sections}
    sections = [measured.get(name) or kept[name] for name, _, _ in SECTIONS if name in measured or name in kept]
    about["left_out"] = [name for name, _, _ in SECTIONS if name not in {section["name"] for section in sections}]
    found = {"bench": "all", "about": about, "sections": sections}
    text = page.text(found)
    with open(args["raw"], "w") as file:
        file.write(page.raw(found))
    with open(args["page"], "w") as file:
        file.write(text)
    say(page.summary(found))
    return any(section["failed"] for section in measured.values())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(1 if main() else 0)
