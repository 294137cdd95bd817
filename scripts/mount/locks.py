"""Locks of programs between two mounts of one filesystem: flock and fcntl.

locks.py FOLDER FOLDER              the rules; both are the same folder, on two mounts
locks.py hold KIND MODE FILE [FIRST LENGTH]
                                    takes a lock, waiting for it, says "held", and keeps it until its input ends
locks.py try KIND MODE FILE [FIRST LENGTH]
                                    says "held" or the error's name
locks.py late FILE                  takes a lock, and says what it can do when its mount has lost it
locks.py count FILE SECONDS         adds 1 to a number in a file under a lock, again and again; says how often
locks.py sqlite FILE SECONDS NAME   transactions in a database; says how many
"""
import contextlib
import errno
import fcntl
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import time

SELF = os.path.abspath(__file__)
MODES = {"sh": (fcntl.LOCK_SH, fcntl.F_RDLCK), "ex": (fcntl.LOCK_EX, fcntl.F_WRLCK)}


def set_lock(fd, kind, mode, first=0, length=0, wait=False):
    if kind == "flock":
        fcntl.flock(fd, MODES[mode][0] | (0 if wait else fcntl.LOCK_NB))
    else:
        what = fcntl.LOCK_SH if mode == "sh" else fcntl.LOCK_EX
        fcntl.lockf(fd, what | (0 if wait else fcntl.LOCK_NB), length, first)


def held_by(fd, mode, first, length):
    """F_GETLK: the type, first byte, length and process of what is in the way."""
    asked = struct.pack("hhqqi4x", MODES[mode][1], 0, first, length, 0)
    typ, _, start, size, pid = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return typ, start, size, pid


def open_lock(path):
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def hold(kind, mode, path, *span):
    fd = open_lock(path)
    try:
        set_lock(fd, kind, mode, *map(int, span), wait=True)
    except KeyboardInterrupt:
        sys.exit(130)
    print("held", flush=True)
    sys.stdin.read()


def attempt(kind, mode, path, *span):
    fd = open_lock(path)
    try:
        set_lock(fd, kind, mode, *map(int, span))
    except OSError as e:
        return errno.errorcode[e.errno]
    return "held"


def late(path):
    """Takes a lock, is told by its input that its mount has lost it, and says what becomes of what it tries."""
    fd = open_lock(path)
    set_lock(fd, "posix", "ex", wait=True)
    print("held", flush=True)
    sys.stdin.readline()

    def tried(call):
        try:
            call()
            return "done"
        except OSError as e:
            return errno.errorcode[e.errno]

    said = [
        tried(lambda: os.pwrite(fd, b"late", 0)),
        tried(lambda: os.fsync(fd)),
        tried(lambda: set_lock(fd, "posix", "ex", 0, 1)),
    ]
    os.close(fd)
    fd = open_lock(path)
    said.append(tried(lambda: set_lock(fd, "posix", "ex")))
    said.append(tried(lambda: os.pwrite(fd, b"new", 0)))
    print(*said, flush=True)


class Holder:
    """Another process with a lock."""

    def __init__(self, *args, ready=True):
        command = [sys.executable, SELF, "hold", *map(str, args)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if ready:
            self.wait()

    def wait(self):
        line = self.process.stdout.readline()
        assert line == "held\n", line

    def is_waiting(self):
        import select

        return not select.select([self.process.stdout], [], [], 0.4)[0]

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


def trying(*args):
    return subprocess.run(
        [sys.executable, SELF, "try", *map(str, args)], capture_output=True, text=True, check=True, timeout=90
    ).stdout.strip()


@contextlib.contextmanager
def holding(*args):
    holder = Holder(*args)
    yield holder
    holder.end()


def expect(got, wanted, what):
    assert got == wanted, f"{what}: {got}, not {wanted}"


def flocks(a, b):
    with holding("flock", "ex", a):
        for at in (a, b):
            for mode in ("sh", "ex"):
                expect(trying("flock", mode, at), "EAGAIN", f"flock {mode} beside an exclusive one")
        expect(trying("posix", "ex", b), "held", "fcntl beside flock")
    with holding("flock", "sh", a):
        expect(trying("flock", "sh", b), "held", "shared twice")
        expect(trying("flock", "ex", b), "EAGAIN", "exclusive beside shared")
    expect(trying("flock", "ex", b), "held", "after all have closed")
    # One open file, two descriptors: the lock lasts until both are closed.
    fd = open_lock(a)
    set_lock(fd, "flock", "ex")
    other = os.dup(fd)
    os.close(fd)
    expect(trying("flock", "sh", b), "EAGAIN", "a duplicate keeps it")
    set_lock(other, "flock", "sh")
    expect(trying("flock", "sh", b), "held", "downgraded")
    os.close(other)
    until(lambda: trying("flock", "ex", b) == "held", "closed")


def until(good, what, seconds=10):
    """What the kernel does behind a close may take a moment."""
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def ranges(a, b):
    with holding("posix", "ex", a, 100, 100):
        expect(trying("posix", "ex", b, 0, 100), "held", "before")
        expect(trying("posix", "ex", b, 200, 10), "held", "after")
        for first, length in ((100, 1), (199, 1), (0, 0), (150, 10), (50, 51)):
            expect(trying("posix", "sh", b, first, length), "EAGAIN", f"bytes {first}+{length}")
        expect(trying("flock", "ex", b), "held", "flock beside fcntl")
        fd = os.open(b, os.O_RDWR)
        expect(held_by(fd, "sh", 0, 0)[:3], (fcntl.F_WRLCK, 100, 100), "F_GETLK")
        expect(held_by(fd, "sh", 0, 100)[0], fcntl.F_UNLCK, "F_GETLK of what is free")
        os.close(fd)
    until(lambda: trying("posix", "ex", b, 0, 0) == "held", "all ended with the process")
    # Split and merged, and what is closed is unlocked, whichever descriptor of the process it is.
    fd = open_lock(a)
    set_lock(fd, "posix", "ex", 0, 300)
    fcntl.lockf(fd, fcntl.LOCK_UN, 100, 100)
    expect(trying("posix", "ex", b, 100, 100), "held", "the middle was given up")
    expect(trying("posix", "sh", b, 200, 1), "EAGAIN", "the end was not")
    set_lock(fd, "posix", "sh", 0, 100)
    expect(trying("posix", "sh", b, 0, 100), "held", "downgraded")
    expect(trying("posix", "ex", b, 99, 1), "EAGAIN", "but not free")
    set_lock(fd, "posix", "ex", 0, 100)
    expect(trying("posix", "sh", b, 0, 100), "EAGAIN", "upgraded")
    other = os.open(a, os.O_RDONLY)
    os.close(other)
    expect(trying("posix", "ex", b, 0, 0), "held", "closing any descriptor unlocks")
    os.close(fd)
    with open(a, "rb") as reader:
        try:
            set_lock(reader.fileno(), "posix", "ex")
            raise AssertionError("a write lock through a descriptor for reading")
        except OSError as e:
            expect(e.errno, errno.EBADF, "a write lock through a descriptor for reading")


def waiting(a, b):
    for kind in ("flock", "posix"):
        first = Holder(kind, "ex", a)
        second = Holder(kind, "ex", b, ready=False)
        third = Holder(kind, "ex", a, ready=False)
        assert second.is_waiting() and third.is_waiting(), f"{kind}: did not wait"
        # Ctrl-C, and kill -9 while waiting.
        second.process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert second.process.wait(10) != 0
        assert time.monotonic() - began < 5, "an interrupted wait did not end"
        fourth = Holder(kind, "ex", b, ready=False)
        assert fourth.is_waiting()
        fourth.process.kill()
        began = time.monotonic()
        fourth.process.wait(10)
        assert time.monotonic() - began < 5, "a wait could not be killed"
        began = time.monotonic()
        first.end()
        third.wait()
        took = time.monotonic() - began
        assert took < 3, f"{kind}: the next waited {took:.1f} s"
        third.end()
        expect(trying(kind, "ex", b), "held", f"{kind}: who was interrupted has nothing")


def deadlock(a, b):
    """Each has a byte and waits for the other's: one of them is told."""
    code = (
        "import sys; sys.path.insert(0, {folder!r}); import locks, os, errno, time\n"
        "fd = locks.open_lock({path!r}); locks.set_lock(fd, 'posix', 'ex', {mine}, 1)\n"
        "print('held', flush=True); sys.stdin.readline()\n"
        "try:\n    locks.set_lock(fd, 'posix', 'ex', {theirs}, 1, wait=True); print('got', flush=True)\n"
        "except OSError as e: print('EDEADLK' if e.errno == errno.EDEADLK else e, flush=True)\n"
    )
    both = []
    for path, mine in ((a, 0), (b, 1)):
        script = code.format(folder=os.path.dirname(SELF), path=path, mine=mine, theirs=1 - mine)
        process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        expect(process.stdout.readline(), "held\n", "a byte")
        both.append(process)
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(0.3)
    said = sorted(process.communicate(timeout=30)[0].strip() for process in both)
    expect(said, ["EDEADLK", "got"], "two that wait for each other")


def seen(a, b):
    """Under a lock one sees what the last holder wrote, through descriptors that were open all the time."""
    one, two = open_lock(a), open_lock(b)
    for n in range(40):
        writer, reader = ((one, two), (two, one))[n % 2]
        text = (b"%06d " % n) * (1 + n * 700 % 20000)
        kind = ("flock", "posix")[n // 2 % 2]
        set_lock(writer, kind, "ex", wait=True)
        os.ftruncate(writer, 0)
        os.pwrite(writer, text, 0)
        unlock(writer, kind)
        set_lock(reader, kind, "sh", wait=True)
        size = os.fstat(reader).st_size
        got = os.pread(reader, 1 << 20, 0)
        assert size == len(text) and got == text, f"round {n}: {size} and {len(got)} bytes, not {len(text)}; {got[:7]}"
        unlock(reader, kind)
    os.close(one)
    os.close(two)


def disjoint(a, b):
    """Each writes bytes of its own under a lock of its own, at the same time: all are there."""
    for size in (200, 100_000, 9_000_000):
        path, other = f"{a}-{size}", f"{b}-{size}"
        with open(path, "wb") as f:
            f.write(b"." * size)
        until(lambda: os.path.exists(other) and os.path.getsize(other) == size, "the file is there")
        fds = [open_lock(path), open_lock(other)]
        for n in range(20):
            for who, fd in enumerate(fds):
                set_lock(fd, "posix", "ex", who * 100, 100, wait=True)
            for who, fd in enumerate(fds):
                os.pwrite(fd, b"%d" % who, who * 100 + n)
            for who, fd in enumerate(fds):
                fcntl.lockf(fd, fcntl.LOCK_UN, 100, who * 100)
        for fd in fds:
            set_lock(fd, "posix", "sh", wait=True)
            data = os.pread(fd, size + 1, 0)
            expect(len(data), size, "size")
            for who in (0, 1):
                expect(data[who * 100 : who * 100 + 20], b"%d" % who * 20, f"bytes of {who} in {size}")
            fcntl.lockf(fd, fcntl.LOCK_UN)
            os.close(fd)


def unlock(fd, kind):
    if kind == "flock":
        fcntl.flock(fd, fcntl.LOCK_UN)
    else:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def count(path, seconds):
    done, end = 0, time.monotonic() + float(seconds)
    fd = open_lock(path)
    while time.monotonic() < end:
        kind = ("flock", "posix")[0]
        set_lock(fd, kind, "ex", wait=True)
        n = int(os.pread(fd, 100, 0) or b"0")
        os.pwrite(fd, b"%d" % (n + 1), 0)
        unlock(fd, kind)
        done += 1
    os.close(fd)
    return done


def database(path, seconds, name):
    done, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        db = sqlite3.connect(path, timeout=120, isolation_level=None)
        for _ in range(20):
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE total SET n = n + 1")
            db.execute("INSERT INTO entry (name, n, text) VALUES (?, ?, ?)", (name, done, "x" * (done * 37 % 3000)))
            if done % 5 == 4:
                db.execute("DELETE FROM entry WHERE rowid IN (SELECT rowid FROM entry WHERE name = ? LIMIT 2)", (name,))
                db.execute("UPDATE gone SET n = n + 2")
            db.execute("COMMIT")
            done += 1
            # Who looks for the lock only now and then must find it free now and then.
            time.sleep(random.random() / 50)
            if time.monotonic() >= end:
                break
        db.close()
    return done


def prepare(path):
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE total (n); INSERT INTO total VALUES (0); CREATE TABLE gone (n); INSERT INTO gone VALUES (0);"
        "CREATE TABLE entry (name, n, text); CREATE INDEX by_name ON entry (name, n);"
    )
    db.close()


def verify(path, done):
    db = sqlite3.connect(path, timeout=120)
    expect(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)], "integrity_check")
    total, gone = (db.execute(f"SELECT n FROM {t}").fetchone()[0] for t in ("total", "gone"))
    expect(total, done, "transactions")
    expect(db.execute("SELECT count(*) FROM entry").fetchone()[0], total - gone, "entries")
    db.close()


def main(args):
    if args[0] == "hold":
        return hold(*args[1:])
    if args[0] == "late":
        return late(args[1])
    if args[0] == "try":
        return print(attempt(*args[1:]))
    if args[0] == "count":
        return print(count(*args[1:]))
    if args[0] == "sqlite":
        return print(database(*args[1:]))
    if args[0] == "prepare":
        return prepare(args[1])
    if args[0] == "verify":
        return verify(args[1], int(args[2]))
    for rule in (flocks, ranges, waiting, deadlock, seen, disjoint):
        began = time.monotonic()
        names = [os.path.join(folder, rule.__name__) for folder in args]
        os.close(open_lock(names[0]))
        rule(*names)
        print(f"{rule.__name__}: as it should be, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
