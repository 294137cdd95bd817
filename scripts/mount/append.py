#!/usr/bin/env python3
"""Programs that append to one file, on two mounts.

append.py HERE THERE     the same directory on both
"""
import os
import subprocess
import sys
import time

LINES = 300


def line(writer, number):
    """100 bytes that say whose they are."""
    return f"{writer} {number} ".encode().ljust(99, b"-") + b"\n"


def write(how, path, writer):
    """What a writing process does."""
    if how == "stays open":
        with open(path, "ab", buffering=0) as log:
            for number in range(LINES):
                log.write(line(writer, number))
                if number % 50 == 49:
                    time.sleep(0.3)
    elif how == "opens for each line":
        for number in range(LINES):
            with open(path, "ab", buffering=0) as log:
                log.write(line(writer, number))
    elif how == "reads too":
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        for number in range(LINES):
            before = os.fstat(fd).st_size
            os.write(fd, line(writer, number))
            if number % 20 == 19:
                time.sleep(0.1)
                mine = [text for text in read(f"/proc/self/fd/{fd}").splitlines() if text.startswith(f"{writer} ".encode())]
                if len(mine) != number + 1:
                    sys.exit(f"{writer} reads {len(mine)} lines of its own {number + 1}; the size before was {before}")
        os.close(fd)
    elif how == "synced":
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for number in range(LINES):
            os.write(fd, line(writer, number))
            if number % 10 == 9:
                os.fsync(fd)
        os.close(fd)
    elif how == "directly":
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_DIRECT)
        for number in range(LINES // 3):
            os.write(fd, line(writer, number))
        os.close(fd)
    elif how == "in megabytes":
        with open(path, "ab", buffering=0) as log:
            for number in range(0, 20_000, 1000):
                log.write(b"".join(line(writer, n) for n in range(number, number + 1000)))
    else:
        sys.exit(f"how is that: {how}")


def read(path):
    with open(path, "rb") as f:
        return f.read()


def judge(what, path, begin, writers, each):
    data = read(path)
    if data[: len(begin)] != begin:
        sys.exit(f"{what}: the beginning is not what it was")
    seen = {}
    for at, text in enumerate(data[len(begin) :].splitlines(keepends=True)):
        fields = text.split()
        if len(text) != 100 or len(fields) < 2:
            sys.exit(f"{what}: line {at} is not one: {text[:120]}")
        writer, number = int(fields[0]), int(fields[1])
        if text != line(writer, number) or number != seen.get(writer, 0):
            sys.exit(f"{what}: line {at} is {writer} {number}, wanted number {seen.get(writer, 0)}")
        seen[writer] = number + 1
    if seen != {writer: each for writer in range(writers)}:
        sys.exit(f"{what}: of {each} lines each there are {seen}; {len(data)} bytes")


def case(here, there, how, begin, writers=2):
    name = how.replace(" ", "-") + f"-{len(begin)}"
    if begin:
        with open(f"{here}/{name}", "wb") as f:
            f.write(begin)
        # The other mount may believe for a second that there is none.
        while not os.path.exists(f"{there}/{name}"):
            time.sleep(0.1)
    paths = [f"{here}/{name}", f"{there}/{name}"]
    began = time.monotonic()
    programs = [
        subprocess.Popen([sys.executable, __file__, "--write", how, paths[n % 2], str(n)]) for n in range(writers)
    ]
    codes = [program.wait() for program in programs]
    if any(codes):
        sys.exit(f"{name}: writers ended with {codes}")
    took = time.monotonic() - began
    each = {"in megabytes": 20_000, "directly": LINES // 3}.get(how, LINES)
    for path in paths:
        judge(name, path, begin, writers, each)
    print(f"{name}: {writers} writers, {took:.1f} s")
    os.unlink(paths[0])


def main(here, there):
    small, large = b"b" * 1000 + b"\n", b"b" * (5 << 20) + b"\n"
    for how in ["stays open", "opens for each line", "reads too", "synced", "directly"]:
        case(here, there, how, b"")
        case(here, there, how, small if how == "opens for each line" else large)
    case(here, there, "stays open", small, writers=4)
    case(here, there, "in megabytes", b"")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(sys.argv[1], sys.argv[2])
