#!/usr/bin/env python3
"""A program that opens what it looks up is served both in one message: what it sees then.

foreseen.py HERE THERE PANDO CLUSTER     HERE is the mount of that program, THERE another mount's view of that directory
"""
import json
import os
import subprocess
import sys
import time

from users import as_user

here, there, pando, cluster = sys.argv[1:]


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def read(path):
    with open(path) as f:
        return f.read()


def in_the_habit(folder):
    """Opens some files, each of which this mount was not asked for before."""
    in_the_habit.turn += 1
    for n in range(4):
        write(f"{there}/habit-{in_the_habit.turn}-{n}", "habit")
        assert read(f"{folder}/habit-{in_the_habit.turn}-{n}") == "habit"


in_the_habit.turn = 0


def open_files():
    out = subprocess.run([pando, "--dir", cluster, "status", "--json"], stdout=subprocess.PIPE, check=True).stdout
    return sum(server["files_open"] for server in json.loads(out)["servers"])


def closed_is_seen():
    """Also by who has looked just before it was closed."""
    for turn in range(60):
        if turn % 10 == 0:
            in_the_habit(here)
        path = f"f{turn}"
        write(f"{there}/{path}", f"first {turn}")
        os.stat(f"{here}/{path}")
        write(f"{there}/{path}", f"second, and longer {turn}")
        assert read(f"{here}/{path}") == f"second, and longer {turn}"
        write(f"{there}/{path}", f"third {turn}")
        assert read(f"{here}/{path}") == f"third {turn}"
        # What is written here, too.
        write(f"{here}/{path}", f"here {turn}")
        assert read(f"{here}/{path}") == f"here {turn}" == read(f"{there}/{path}")


def replaced_is_seen():
    for turn in range(30):
        in_the_habit(here) if turn % 10 == 0 else None
        write(f"{there}/new", f"new {turn}")
        os.rename(f"{there}/new", f"{there}/replaced{turn % 3}")
        want = f"new {turn}"
        # A name may be believed for the timeout.
        end = time.monotonic() + 2
        while read(f"{here}/replaced{turn % 3}") != want:
            assert time.monotonic() < end, "a replaced file is still read"
            time.sleep(0.02)


def no_more_than_allowed():
    if os.getuid() != 0:
        print("not root: other users were left out")
        return
    os.mkdir(f"{there}/users", 0o755)
    for n in range(40):
        write(f"{there}/users/{n}", f"secret {n}")
        os.chmod(f"{there}/users/{n}", 0o600 if n % 4 == 3 else 0o644)

    def look():
        for n in range(40):
            try:
                assert read(str(n)) == f"secret {n}" and n % 4 != 3, f"{n} was read"
            except PermissionError:
                assert n % 4 == 3, f"{n} was not read"
        # Nor for other things than it was opened for.
        for n in range(40):
            if n % 4 != 3:
                read(str(n))
                for flags in (os.O_WRONLY, os.O_RDWR):
                    try:
                        os.close(os.open(str(n), flags))
                        raise AssertionError(f"{n} was opened with {flags}")
                    except PermissionError:
                        pass

    time.sleep(1.2)
    assert (told := as_user(12345, 12345, [], look, f"{here}/users")) is None, told


def nothing_stays_open():
    in_the_habit(here)
    for n in range(50):
        write(f"{there}/vain{n}", "x")
    end = time.monotonic() + 10
    while before := open_files():
        assert time.monotonic() < end, f"{before} files are open"
        time.sleep(0.1)
    time.sleep(1.2)
    for n in range(50):
        read(f"{here}/vain{n}") if n < 3 else os.stat(f"{here}/vain{n}")
    # The last one, too, of which nobody asks anything more.
    read(f"{here}/vain0")
    read(f"{here}/vain1")
    read(f"{here}/vain2")
    time.sleep(1.2)
    for n in range(3, 9):
        read(f"{here}/vain{n}")
    os.stat(f"{here}/vain9")
    end = time.monotonic() + 10
    while left := open_files():
        assert time.monotonic() < end, f"{left} files stay open"
        time.sleep(0.1)


def links_and_others():
    """What is no regular file is only looked at."""
    os.mkdir(f"{there}/dir")
    write(f"{there}/dir/inside", "inside")
    os.symlink("dir/inside", f"{there}/link")
    os.mkfifo(f"{there}/fifo")
    in_the_habit(here)
    assert read(f"{here}/link") == "inside"
    in_the_habit(here)
    assert os.listdir(f"{here}/dir") == ["inside"]
    in_the_habit(here)
    fifo = os.open(f"{here}/fifo", os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(fifo, 1) == b""
    os.close(fifo)
    in_the_habit(here)
    try:
        read(f"{here}/missing")
        raise AssertionError("what is not there was opened")
    except FileNotFoundError:
        pass


for step in (closed_is_seen, replaced_is_seen, no_more_than_allowed, links_and_others, nothing_stays_open):
    began = time.monotonic()
    step()
    print(f"{step.__name__}: {time.monotonic() - began:.1f} s", flush=True)
