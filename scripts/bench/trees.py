"""Sections of `make bench` that measure large directories and whole trees, what they take on disk and in memory, and mixes of operations."""

import os
import time

from measure import Failed, row
from operations import LOOK, TREE, Files, of

MIB = 1 << 20


def listing(bench):
    """Cold: the servers have just been started, and nobody remembers anything."""
    at = ("list", "--entries", bench.files, "--keep", "--rounds", 1)
    with bench.cluster(4) as cluster:
        cluster.json(*at)

        def cold(kinds, op):
            cluster.run("restart")
            return cluster.json(*at, "--kinds", kinds)[f"{op} 1"]

        seen = bench.turns({"names": lambda: cold("names", "readdir"), "attributes": lambda: cold("attributes", "readdirplus")})
    rows = []
    for kind, title, target in (("names", "names and types", 1_000_000), ("attributes", "with attributes", 400_000)):
        rows.append(row(f"{title}, entries", of(seen[kind], "ops_per_s"), "/s", (">=", target)))
        for who, name in (("client", "the client's"), ("servers", "the servers'")):
            grown = [kib / 1024 for kib in of(seen[kind], f"{who}_growth_kib")]
            rows.append(row(f"{title}, growth of {name} memory", grown, "MiB", ("<=", 64)))
    return rows


def directory(bench):
    """Creates where there are so many entries, in turns, by somebody who polls: nothing hides what the directory costs."""
    sizes = [size for size in (1_000, 100_000, 1_000_000) if size <= bench.files] or [bench.files]
    if sizes[-1] < bench.files < 1_000_000:
        sizes.append(bench.files)
    with bench.cluster(1, waiting="polling") as cluster:
        for size in sizes:
            cluster.fill(size, f"/with.{size}", clients=1)

        def create(size):
            line = ("mdtest", "-C", "-r", "-F", "--clients", 1, "--waiting", "polling", "-n", 1000, "--from", size, "-d", f"/with.{size}")
            return cluster.json(*line)["file-create"]["p50_us"]

        seen = bench.turns({size: lambda size=size: create(size) for size in sizes})
    small = sizes[0]
    against = f"where there are {small:,}"
    rows = [row(f"create where there are {small:,}, p50", seen[small], "us")]
    return rows + [row(f"create where there are {size:,}, p50", seen[size], "us", ("+-", 0.15), against, seen[small]) for size in sizes[1:]]


def space(bench):
    """Once: it is a count."""
    with bench.cluster(4) as cluster:
        empty = cluster.memory()
        files = Files(bench, cluster, 8, 64)
        there = files.each * 8
        memory, disk = cluster.memory(), cluster.disk()
        cluster.run("restart")
        restarted = cluster.memory()
        cluster.run("down")
        for server in range(cluster.servers):
            cluster.run("server", "--id", server, "--compact")
        compacted, _ = cluster.disk()
        # All is still there.
        cluster.up()
        files.stat(1000)
        if (found := count(bench, cluster, "/tree")) != there:
            raise Failed(f"{found} of {there} files are there after compaction")
    million = there / 1_000_000
    return [
        row("bytes on disk for an empty file, after compaction", [compacted / there], "", ("<=", 120)),
        row("the same, while servers run, before", [disk[0] / there], ""),
        row("the same, without what logs have allocated ahead", [disk[1] / there], ""),
        row("memory of 4 servers for 1,000,000 files that were just made, caches included", [(memory - empty) / MIB / million], "MiB"),
        row("memory of 4 servers just started, no files", [empty / MIB], "MiB"),
        row("memory of 4 servers started again with the files", [restarted / MIB], "MiB"),
    ]


def count(bench, cluster, at):
    """Files that `pando find` prints."""
    path = os.path.join(bench.work, "found")
    with open(path, "w") as out:
        cluster.run("find", at, "-type", "f", stdout=out)
    with open(path, "rb") as found:
        lines = sum(block.count(b"\n") for block in iter(lambda: found.read(MIB), b""))
    os.remove(path)
    return lines


def trees(bench):
    rows = []
    with bench.cluster(4) as cluster:
        for title, tree in (("1 directory", ()), ("1,001 directories", ("-b", 1000, "-z", 1))):
            seen = {"find": [], "du": [], "rm": []}
            for _ in range(bench.few):
                cluster.fill(bench.files, "/whole", *tree)
                for what in seen:
                    cluster.run("restart")
                    began = time.monotonic()
                    if what == "find":
                        if (found := count(bench, cluster, "/whole")) != bench.files:
                            raise Failed(f"{found} of {bench.files} files were found")
                    elif what == "du":
                        cluster.run("du", "-s", "/whole")
                    else:
                        cluster.run("rm", "-r", "/whole")
                    seen[what].append(bench.files / (time.monotonic() - began))
                if cluster.run("ls", "/").strip():
                    raise Failed("`pando rm -r` left something")
            for what, command in (("rm", "rm -r"), ("du", "du -s"), ("find", "find")):
                rows.append(row(f"`pando {command}`, {title}, files", seen[what], "/s", (">=", 100_000)))
    return rows


def mix(bench):
    rows, clients, depth = [], 8, 64
    with bench.cluster(4) as cluster:

        def workload(name):
            line = ("mix", "--workload", name, "-n", min(5_000, bench.files // clients), "--clients", clients, "--depth", depth, "--seconds", 2)
            [result] = [r for r in cluster.json(*line).values() if r["kind"] == "all"]
            return result["ops_per_s"]

        def null():
            return cluster.json("null", "--clients", clients, "--depth", depth, "--seconds", LOOK)["null"]["ops_per_s"]

        names = ("alibaba", "baidu", "spotify")
        seen = bench.turns({"null": null, **{name: lambda name=name: workload(name) for name in names}}, rounds=bench.few)
    for name in names:
        rows.append(row(f"{name.capitalize()}, operations", seen[name], "/s", None, "`null`", seen["null"]))
    return rows
