"""Two mounts of one filesystem. What one closes the other sees when it opens; names within the timeout of 1 s."""
import hashlib
import os
import random
import sys
import time

a, b = sys.argv[1:]
rand = random.Random(2)
TIMEOUT = 1.0


def write(path, data, mode="wb"):
    with open(path, mode) as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def within(what, test):
    """True at the latest when the timeout is over."""
    end = time.monotonic() + TIMEOUT + 0.5
    while not test():
        assert time.monotonic() < end, f"{what} is not seen after {TIMEOUT} s"
        time.sleep(0.02)


# Open after close sees it, at once, both ways, whatever the size and whatever was cached.
for size in (1, 100, 4096, 65535, 65536, 65537, 200_000, 4 << 20, 5 << 20, 70, 65536, 0, 3):
    for here, there in ((a, b), (b, a)):
        data = rand.randbytes(size)
        write(f"{here}/file", data)
        within("a new file", lambda there=there: os.path.exists(f"{there}/file"))
        got = read(f"{there}/file")
        assert got == data, f"{size} bytes written on {here}, {len(got)} read on {there}"
# The same length, and changes in place: neither size nor name tells.
for i in range(20):
    here, there = ((a, b), (b, a))[i % 2]
    for size in (50, 300_000):
        name = f"same{size}"
        data = bytes([i]) * size
        write(f"{here}/{name}", data)
        if i == 0:
            within("a new file", lambda there=there, name=name: os.path.exists(f"{there}/{name}"))
        assert read(f"{there}/{name}") == data, (i, size)
        with open(f"{there}/{name}", "r+b") as f:
            f.seek(size // 2)
            f.write(b"!")
        assert read(f"{here}/{name}")[size // 2] == ord("!"), (i, size)
# Appends by turns.
write(f"{a}/log", b"")
within("a new file", lambda: os.path.exists(f"{b}/log"))
want = b""
for i in range(60):
    line = b"line %d\n" % i * 100
    write(f"{(a, b)[i % 2]}/log", line, "ab")
    want += line
    assert read(f"{(b, a)[i % 2]}/log") == want, i
# A file replaced by rename, as editors do.
for i in range(10):
    here, there = ((a, b), (b, a))[i % 2]
    write(f"{here}/new", b"version %d" % i)
    os.rename(f"{here}/new", f"{here}/replaced")
    within("a replaced file", lambda there=there, i=i: os.path.exists(f"{there}/replaced")
           and read(f"{there}/replaced") == b"version %d" % i)

# Names, removals and attributes, which each mount has cached before.
write(f"{a}/one", b"1")
os.mkdir(f"{a}/dir")
write(f"{a}/dir/x", b"x")
within("a new file", lambda: os.path.exists(f"{b}/dir/x") and os.path.exists(f"{b}/one"))
os.rename(f"{a}/one", f"{a}/two")
within("a rename", lambda: not os.path.exists(f"{b}/one") and read(f"{b}/two") == b"1")
os.rename(f"{b}/dir", f"{b}/moved")
within("a renamed directory", lambda: not os.path.exists(f"{a}/dir") and os.path.exists(f"{a}/moved/x"))
os.unlink(f"{b}/moved/x")
within("a removal", lambda: not os.path.exists(f"{a}/moved/x") and os.listdir(f"{a}/moved") == [])
os.rmdir(f"{a}/moved")
within("a removed directory", lambda: not os.path.exists(f"{b}/moved"))
os.chmod(f"{a}/two", 0o751)
os.utime(f"{a}/two", ns=(5, 1_234_567_891_000_000_007))
within("a new mode and mtime", lambda: os.stat(f"{b}/two").st_mode & 0o777 == 0o751
       and os.stat(f"{b}/two").st_mtime_ns == 1_234_567_891_000_000_007)
# 300 files at once.
for i in range(300):
    write(f"{a}/many{i}", b"%d" % i)
within("many files", lambda: len([n for n in os.listdir(b) if n.startswith("many")]) == 300)
assert all(read(f"{b}/many{i}") == b"%d" % i for i in range(300))
for i in range(300):
    os.unlink(f"{b}/many{i}")
within("many removals", lambda: not [n for n in os.listdir(a) if n.startswith("many")])

# A reader that keeps a file open while it is removed and while it is replaced on its own mount.
data = rand.randbytes(9 << 20)
write(f"{b}/kept", data)
with open(f"{b}/kept", "rb") as f:
    first = f.read(1 << 20)
    os.unlink(f"{b}/kept")
    rest = f.read()
    assert hashlib.sha256(first + rest).digest() == hashlib.sha256(data).digest()
