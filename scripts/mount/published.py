#!/usr/bin/env python3
"""What another mount sees of files that stay open.

published.py seen HERE THERE     HERE publishes within a second; THERE is another mount's view of that directory
published.py closed HERE THERE   HERE publishes at close and fsync alone
published.py write HERE          writes, says so, and keeps everything open until it is killed
published.py read THERE SIGNAL   what is there of that after the mount got the signal
"""
import mmap
import os
import sys
import time

BIG = 3 << 20


def read(path):
    with open(path, "rb") as f:
        return f.read()


def there_is(path, want):
    """A name that was not there may be believed to be missing for the timeout."""
    try:
        return read(path) == want
    except FileNotFoundError:
        return False


def soon(what, holds, within=15.0):
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within:
            sys.exit(f"not within {within} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - began


def appended(here, there):
    """A log that grows: by who opens it, and by who has it open."""
    want = b""
    with open(f"{here}/log", "wb", buffering=0) as log:
        reader = None
        for turn in range(3):
            for line in range(200):
                text = b"%d %d %s\n" % (turn, line, b"x" * (line % 97))
                log.write(text)
                want += text
            took = soon("a log, by who opens it", lambda: there_is(f"{there}/log", want))
            reader = reader or os.open(f"{there}/log", os.O_RDONLY)
            soon("its size, by who has it open", lambda: os.fstat(reader).st_size == len(want))
            assert os.pread(reader, 1 << 20, 0) == want
            assert os.stat(f"{there}/log").st_size == len(want)
        os.close(reader)
    print(f"a log was seen after {took:.1f} s")


def tailed(here, there):
    """A reader that only reads on at the end, as tail does."""
    with open(f"{here}/tail", "wb", buffering=0) as log:
        log.write(b"first\n")
        soon("the first line", lambda: there_is(f"{there}/tail", b"first\n"))
        with open(f"{there}/tail", "rb", buffering=0) as reader:
            seen = b""
            for turn in range(3):
                want = b"first\n" if turn == 0 else b"line %d\n" % turn
                if turn:
                    log.write(want)
                got = []

                def more():
                    got.append(reader.read(1 << 16))
                    return b"".join(got) == want

                soon("a line, by reading on", more)
                seen += want


def overwritten(here, there):
    """The same size: nothing but the content tells."""
    for size in (100, BIG):
        with open(f"{here}/same", "wb", buffering=0) as f:
            f.write(b"a" * size)
            os.fsync(f.fileno())
            reader = os.open(f"{there}/same", os.O_RDONLY)
            assert os.pread(reader, size, 0) == b"a" * size
            mapped = mmap.mmap(reader, size, prot=mmap.PROT_READ)
            assert mapped[size - 1:] == b"a"
            os.pwrite(f.fileno(), b"b" * 50, size - 50)
            soon("other bytes, by who has it open", lambda: os.pread(reader, 50, size - 50) == b"b" * 50)
            soon("other bytes, in a mapping", lambda: mapped[size - 50:] == b"b" * 50)
            mapped.close()
            os.close(reader)


def large(here, there):
    """In blocks, by a writer that goes on while it is published."""
    want = bytearray()
    with open(f"{here}/large", "wb", buffering=0) as f:
        until = time.monotonic() + 4
        seen = 0
        while time.monotonic() < until:
            piece = os.urandom(100_000)
            f.write(piece)
            want += piece
            if len(want) > 64 << 20:
                time.sleep(0.2)
            size = os.stat(f"{there}/large").st_size
            assert size >= seen, "it shrank"
            seen = size
        assert seen > 0, "nothing was seen while it was written"
        now = bytes(want)
        soon("all of it", lambda: os.stat(f"{there}/large").st_size == len(now))
        assert read(f"{there}/large") == now


def others(here, there):
    """Copies, mappings, holes, truncation."""
    with open(f"{here}/source", "wb") as f:
        f.write(b"s" * 70_000)
    with open(f"{here}/source", "rb") as source, open(f"{here}/copy", "wb", buffering=0) as copy:
        done = 0
        while done < 70_000:
            done += os.copy_file_range(source.fileno(), copy.fileno(), 70_000 - done)
        soon("a copy", lambda: there_is(f"{there}/copy", b"s" * 70_000))
        os.ftruncate(copy.fileno(), 10)
        soon("cut", lambda: there_is(f"{there}/copy", b"s" * 10))
    with open(f"{here}/mapped", "w+b") as f:
        f.truncate(8192)
        mapped = mmap.mmap(f.fileno(), 8192)
        mapped[5000:5005] = b"hello"
        mapped.flush()
        soon("a mapping", lambda: read(f"{there}/mapped")[5000:5005] == b"hello")
        mapped.close()


def direct(here, there):
    """Published when the write returns."""
    page = mmap.mmap(-1, 4096)
    page.write(b"d" * 4096)
    for name, flag in (("O_DIRECT", os.O_DIRECT), ("O_SYNC", os.O_SYNC), ("O_DSYNC", os.O_DSYNC)):
        fd = os.open(f"{here}/{name}", os.O_CREAT | os.O_WRONLY | flag)
        for times in range(1, 5):
            os.write(fd, page)
            got = len(read(f"{there}/{name}"))
            assert got == times * 4096, f"{name}: {got} bytes after {times} writes"
        os.close(fd)


def closed(here, there):
    fd = os.open(f"{here}/f", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"one")
    time.sleep(3)
    assert read(f"{there}/f") == b"", "it was published"
    os.fsync(fd)
    assert read(f"{there}/f") == b"one"
    os.write(fd, b"two")
    os.close(fd)
    assert read(f"{there}/f") == b"onetwo"
    direct(here, there)


def write(here):
    old = open(f"{here}/old", "wb", buffering=0)
    old.write(b"o" * 1000)
    time.sleep(4)
    small = open(f"{here}/small", "wb", buffering=0)
    small.write(b"s" * 1000)
    big = open(f"{here}/big", "wb", buffering=0)
    big.write(b"b" * BIG)
    f = open(f"{here}/mapped", "w+b")
    f.truncate(8192)
    mapped = mmap.mmap(f.fileno(), 8192)
    mapped[5000:5005] = b"hello"
    print("written", flush=True)
    time.sleep(300)


def after(there, signal):
    assert read(f"{there}/old") == b"o" * 1000, "what was written long before is lost"
    whole = {
        "small": read(f"{there}/small") == b"s" * 1000,
        "big": read(f"{there}/big") == b"b" * BIG,
        "mapped": read(f"{there}/mapped")[5000:5005] == b"hello",
    }
    print(f"after SIG{signal}: {whole}")
    if signal == "TERM":
        assert all(whole.values()), whole
    else:
        # Either is right; what is there must be whole or nothing.
        assert read(f"{there}/small") in (b"", b"s" * 1000)


def main():
    what, *places = sys.argv[1:]
    if what == "seen":
        for part in (appended, tailed, overwritten, large, others, direct):
            part(*places)
            for name in os.listdir(places[0]):
                os.unlink(f"{places[0]}/{name}")
    elif what == "closed":
        closed(*places)
    elif what == "write":
        write(*places)
    elif what == "read":
        after(*places)
    else:
        sys.exit(__doc__)


main()
