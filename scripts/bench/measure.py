"""What the sections of `make bench` have in common: the program, clusters of its own, turns, and rows of the page."""

import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time


def say(text):
    print(text, file=sys.stderr, flush=True)


class Failed(Exception):
    """A section cannot go on: why."""


class Missing(Exception):
    """A section cannot be measured here, and nothing is wrong: why."""


def run(command, stdout=subprocess.PIPE, **options):
    """Runs a program. When this is interrupted the program is told so, and awaited."""
    child = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, **options)
    try:
        out, err = child.communicate()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if child.returncode != 0:
        # Neither whose folder it was nor what it had printed so far.
        words = " ".join(os.path.basename(word) if "/" in word[1:] else word for word in command)
        raise Failed(f"`{words}` ended with status {child.returncode}: {err.strip().splitlines()[-1] if err.strip() else 'no reason given'}")
    return out or ""


def run_aloud(command, environment):
    """Runs a program that says how far it is ("round 1 of 11 done"). Its exit status, and the last that it said beside that."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, env=environment)
    last = []
    try:
        for line in child.stderr:
            say(f"  {line.rstrip()}")
            if not re.match(r"round \d+ of \d+ done", line):
                last = [*last[-7:], line.strip()]
        return child.wait(), last
    except BaseException:
        child.terminate()
        child.wait()
        raise


class Bench:
    """How the whole run is made."""

    def __init__(self, pando, work, rounds, files, ext4):
        self.pando, self.work, self.rounds, self.files = pando, work, rounds, files
        # A mount of it, if there is one.
        self.ext4 = ext4
        # What must be made anew each time is measured less often.
        self.few = min(rounds, 3)
        self.commit = None

    def json(self, *command):
        """A bench that needs no cluster."""
        figures = json.loads(run([self.pando, "--json", "bench", *map(str, command)]))
        self.commit = figures.get("commit")
        return {result["op"]: result for result in figures["results"]}

    def turns(self, measures, rounds=None):
        """Measures each thing once a round, in an order that shifts and turns round. A first round is not counted. `measures` has a function by
        name. Values by name, in the order of rounds."""
        names, values = list(measures), {name: [] for name in measures}
        rounds = rounds or self.rounds
        for turn in range(rounds + 1):
            shift = turn % len(names)
            order = names[shift:] + names[:shift]
            for name in order[::-1] if turn % 2 else order:
                value = measures[name]()
                if turn > 0:
                    values[name].append(value)
            if turn > 0:
                say(f"  {', '.join(map(str, names))}: round {turn} of {rounds}")
        return values

    @contextlib.contextmanager
    def cluster(self, servers, durability="async", waiting="adaptive"):
        cluster = Cluster(self, servers, durability, waiting)
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.end()


class Cluster:
    """Servers of this machine in a folder of their own."""

    def __init__(self, bench, servers, durability, waiting):
        self.bench, self.servers, self.durability, self.waiting = bench, servers, durability, waiting
        self.folder = os.path.join(bench.work, f"cluster-{time.monotonic_ns()}")

    def run(self, *command, **options):
        return run([self.bench.pando, "--dir", self.folder, *map(str, command)], **options)

    def up(self):
        self.run("up", "--servers", self.servers, "--durability", self.durability, "--waiting", self.waiting)

    def end(self):
        with contextlib.suppress(Failed):
            self.run("down")
        shutil.rmtree(self.folder, ignore_errors=True)

    def json(self, *command):
        figures = json.loads(self.run("--json", "bench", *command))
        self.bench.commit = figures.get("commit")
        return {result["op"]: result for result in figures["results"]}

    def pids(self):
        """Of the servers: their command line has this folder, which nobody else's has."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = open(f"/proc/{pid}/cmdline").read().split("\0")
                if self.folder in words and "server" in words:
                    found.append(int(pid))
        if len(found) != self.servers:
            raise Failed(f"{len(found)} of {self.servers} servers run")
        return found

    @contextlib.contextmanager
    def asleep(self):
        """Servers that never sleep would take a processor from whatever else is measured."""
        pids = self.pids() if self.waiting == "polling" else []
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            if pids:
                time.sleep(0.1)

    def memory(self):
        """Bytes that all servers together have in memory."""
        total = 0
        for pid in self.pids():
            for line in open(f"/proc/{pid}/status"):
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) << 10
        return total

    def disk(self):
        """Bytes of the servers' folders: as allocated, and as written."""
        allocated = written = 0
        for at, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(os.path.join(at, name))
                    allocated += found.st_blocks * 512
                    written += found.st_size
        return allocated, written

    def fill(self, files, at, *tree, clients=2):
        """Makes files, spread over a tree."""
        return self.json("mdtest", "-C", "-F", "-n", files // clients, "--clients", clients, "--depth", 64, "-d", at, *tree)


def holds(value, target):
    """Whether a value is as it should be.

    >>> holds(1.2, ("<=", 1.3)), holds(0.4, (">=", 0.5)), holds(0.8, ("+-", 0.15)), holds(1.1, ("+-", 0.15))
    (True, False, False, True)
    """
    sign, bound = target
    return {"<=": value <= bound, ">=": value >= bound, "+-": abs(value - 1) <= bound}[sign]


def spread(values):
    """The middle, the smallest and the largest.

    >>> spread([3.0, 1.0, 2.0])
    [2.0, 1.0, 3.0]
    """
    return [statistics.median(values), min(values), max(values)]


def significant(value, digits=4):
    """Short enough for a file that people look at.

    >>> significant(123456.0), significant(0.123456), significant(None)
    (123500.0, 0.1235, None)
    """
    return None if value is None else float(f"{value:.{digits}g}")


def row(what, ours, unit, target=None, against=None, theirs=None, note=None):
    """A line of the page. With `theirs`, values of the same rounds, the ratio to them is judged; else the value itself, and its ratio is that to
    the target.

    >>> r = row("a", [2.0, 6.0, 3.0], "us", ("<=", 1.3), "b", [2.0, 2.0, 2.0])
    >>> r["ratio"], r["reached"], r["measured"], r["compared"]
    ([1.5, 1.0, 3.0], False, 3.0, 2.0)
    >>> r = row("a", [50.0, 70.0, 60.0], "/s", (">=", 50))
    >>> r["ratio"], r["reached"]
    ([1.2, 1.0, 1.4], True)
    >>> row("a", [1.0], "us")["reached"] is None
    True
    """
    if not ours or (theirs is not None and len(theirs) != len(ours)):
        raise Failed(f"{what}: {len(ours)} values, to be compared with {len(theirs or [])}")
    line = {"what": what, "measured": statistics.median(ours), "unit": unit, "against": against, "compared": None, "ratio": None}
    if theirs is not None:
        line["compared"] = statistics.median(theirs)
        line["ratio"] = spread([a / b for a, b in zip(ours, theirs)])
    elif target is not None and target[1] > 0:
        line["ratio"] = spread([value / target[1] for value in ours])
    line["target"] = target
    judged = line["measured"] if theirs is None else line["ratio"][0]
    line["reached"] = None if target is None else holds(judged, target)
    line["values"] = {"ours": ours, "theirs": theirs}
    if note:
        line["note"] = note
    return line
