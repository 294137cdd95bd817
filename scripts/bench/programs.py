"""Everyday programs on a mount: files a second of `tar x`, `cat`, `cp -a`, `git status` and `rm -r`.

  programs.py archive FILE COUNT        makes an archive of so many small files, 100 in each directory
  programs.py measure MOUNT ARCHIVE     unpacks it there, does the rest, removes everything, and prints a line (as `pando bench posix` does)

What was written is left alone for longer than names are believed before it is read: that is what a program finds that begins.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time

EACH = 100
EXPIRED = 1.2


def archive(path, count):
    with tarfile.open(path, "w") as tar:
        for n in range(int(count)):
            data = (f"line {n}\n" * (n % 90 + 1)).encode()
            entry = tarfile.TarInfo(f"tree/d{n // EACH:04}/f{n:05}")
            entry.size, entry.mode, entry.mtime = len(data), (0o644, 0o600, 0o755)[n % 3], 1_600_000_000 + n
            tar.addfile(entry, io.BytesIO(data))


def run(*command, **more):
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **more)


def measure(mount, path):
    work = os.path.join(mount, "programs")
    shutil.rmtree(work, ignore_errors=True)
    os.mkdir(work)
    tree = os.path.join(work, "tree")
    with tarfile.open(path) as tar:
        names = [member.name for member in tar if member.isfile()]
    git = ["git", "-c", "gc.auto=0", "-c", "core.fsmonitor=false", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", tree]
    results = []

    def timed(op, *command, **more):
        time.sleep(EXPIRED)
        began = time.monotonic()
        run(*command, **more)
        seconds = time.monotonic() - began
        results.append({"op": op, "ops": len(names), "ops_per_s": len(names) / seconds})

    timed("tar x", "tar", "-xf", path, "-C", work)
    timed("cat", "xargs", "-0", "cat", input="\0".join(names).encode(), cwd=work)
    timed("cp -a", "cp", "-a", tree, os.path.join(work, "copy"))
    run(*git, "init", "-q")
    run(*git, "add", ".")
    run(*git, "commit", "-qm", "first")
    timed("git status", *git, "status", "--porcelain")
    timed("rm -r", "rm", "-r", os.path.join(work, "copy"))
    shutil.rmtree(work)
    print(json.dumps({"results": results}))


if __name__ == "__main__":
    commands = {"archive": archive, "measure": measure}
    if len(sys.argv) != 4 or sys.argv[1] not in commands:
        raise SystemExit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
