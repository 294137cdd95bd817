#!/usr/bin/env python3
"""What everyday programs on a mount cost for each file.

counts.py KIND TIMEOUT HERE PID PANDO CLUSTER WORK

KIND is `operations`: of servers, and wake-ups of the threads of the mount's process PID; or `calls`: system calls of these threads,
as strace counts them. TIMEOUT is the mount's, in seconds. HERE is a folder on the mount, WORK one beside it. Fails if something costs
more than it may (LIMITS).
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

FILES, DIRS = 300, 3
# For each file, by timeout: operations of servers, wake-ups. A little more than was counted.
LIMITS = {
    "tar x": {1: (3.6, 25), 0: (12.5, 35)},
    "cat": {1: (1.2, 6), 0: (4.4, 15)},
    "cat by one each": {1: (2.3, 12), 0: (7.4, 22)},
    "ls -l": {1: (2.3, 8), 0: (5.5, 14)},
    "cp -a": {1: (7.3, 40), 0: (41, 90)},
    "git status": {1: (1.6, 5), 0: (5.5, 14)},
    "rm -r": {1: (1.4, 6), 0: (2.6, 8)},
}
# System calls for each file. What is faster than the others here makes fewer: a thread that finds the next request at once waits for none.
CALLS = {"tar x": 75, "cat": 30, "cp -a": 135, "rm -r": 22}


class Counters:
    """What is counted so far."""

    def __init__(self, kind, pid, pando, cluster, work):
        self.kind, self.pid, self.pando, self.cluster, self.work = kind, pid, pando, cluster, work

    def operations(self):
        out = subprocess.run([self.pando, "--dir", self.cluster, "status", "--json"], stdout=subprocess.PIPE, check=True).stdout
        return sum(server["operations"] for server in json.loads(out)["servers"])

    def wakeups(self):
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/status") as status:
                total += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read(), re.M)[1])
        return total

    def of(self, f):
        """What `f` costs: operations and wake-ups, or system calls."""
        # What went before is said: what was closed, atimes.
        time.sleep(0.3)
        if self.kind == "calls":
            out = f"{self.work}/counts-strace.out"
            strace = subprocess.Popen(["strace", "-f", "-qq", "-c", "-o", out, "-p", str(self.pid)])
            time.sleep(0.5)
            f()
            time.sleep(0.1)
            strace.send_signal(signal.SIGINT)
            strace.wait()
            with open(out) as lines:
                found = [line.split() for line in lines]
            calls = {line[-1]: int(line[3]) for line in found if len(line) > 4 and line[3].isdigit() and line[-1] != "total"}
            print("   ", ", ".join(f"{name} {n / FILES:.2f}" for name, n in calls.items() if n > FILES / 20))
            return (sum(calls.values()),)
        woken, asked = self.wakeups(), self.operations()
        f()
        # Within the time after which it is told what was closed.
        woken = self.wakeups() - woken
        time.sleep(0.2)
        return self.operations() - asked, woken


def run(*command, **more):
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **more)


def files(folder):
    return [f"{folder}/d{n % DIRS}/f{n:04}" for n in range(FILES)]


def make_archive(work):
    """Small files, with times and modes of their own."""
    source = f"{work}/counts-source"
    shutil.rmtree(source, ignore_errors=True)
    for n in range(DIRS):
        os.makedirs(f"{source}/d{n}")
    for n, path in enumerate(files(source)):
        with open(path, "w") as f:
            f.write(f"line {n}\n" * (n % 90 + 1))
        os.chmod(path, (0o644, 0o600, 0o755)[n % 3])
        os.utime(path, (1_600_000_000 + n, 1_500_000_000 + n))
    archive = f"{work}/counts.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(source, "tree")
    return source, archive


def main():
    kind, timeout, here, pid, pando, cluster, work = sys.argv[1:]
    timeout = int(timeout)
    counters = Counters(kind, int(pid), pando, cluster, work)
    source, archive = make_archive(work)
    tree = f"{here}/tree"
    one_each = ["xargs", "-0", "-n", "1", "cat"]
    names = "\0".join(files(".")).encode()

    def each(command):
        """From within each folder, so that nothing leads there but the names of files."""
        for n in range(DIRS):
            run(*command, *(os.path.basename(path) for path in files(tree)[n::DIRS]), cwd=f"{tree}/d{n}")

    git = ["git", "-c", "gc.auto=0", "-c", "core.fsmonitor=false", "-C", tree]
    expired = timeout + 0.2

    def git_status():
        out = subprocess.run([*git, "status", "--porcelain"], stdout=subprocess.PIPE, check=True).stdout
        assert out == b"", out

    def repository():
        run(*git, "init", "-q")
        run(*git, "add", ".")
        run(*git, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first")
        # What was changed in this second is read again.
        time.sleep(1.1)
        git_status()

    steps = [
        ("tar x", None, lambda: run("tar", "-xf", archive, "-C", here)),
        ("cat", None, lambda: each(["cat"])),
        ("cat by one each", None, lambda: run(*one_each, input=names, cwd=tree)),
        ("ls -l", None, lambda: each(["ls", "-l"])),
        ("cp -a", None, lambda: run("cp", "-a", tree, f"{here}/copy")),
        ("git status", repository, git_status),
        ("rm -r", None, lambda: run("rm", "-r", f"{here}/copy")),
    ]
    over = []
    for what, before, step in steps:
        if kind == "calls" and what not in CALLS:
            continue
        if before:
            before()
        # Every name is asked for again.
        time.sleep(expired)
        counted = [n / FILES for n in counters.of(step)]
        most = (CALLS[what],) if kind == "calls" else LIMITS[what][timeout]
        units = ("system calls",) if kind == "calls" else ("operations", "wake-ups")
        told = ", ".join(f"{n:.2f} {unit} (at most {limit})" for n, unit, limit in zip(counted, units, most))
        print(f"{what}: for each file {told}", flush=True)
        if any(n > limit for n, limit in zip(counted, most)):
            over.append(what)
        if what == "tar x":
            run("diff", "-r", source, tree)
            for a, b in zip(files(source), files(tree)):
                a, b = os.stat(a), os.stat(b)
                assert (a.st_mode, a.st_mtime_ns, a.st_uid, a.st_gid) == (b.st_mode, b.st_mtime_ns, b.st_uid, b.st_gid)
    for folder in (tree, f"{here}/copy"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(source)
    os.unlink(archive)
    if over:
        sys.exit(f"more than it may: {', '.join(over)}")


main()
