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

# What is in a directory that was made here is known here, as long as nobody else changes it: and when somebody does, within the timeout.
os.mkdir(f"{a}/mine")
dir_a = os.open(f"{a}/mine", os.O_RDONLY)
for i in range(300):
    assert not os.path.exists(f"{a}/mine/{i}")
    write(f"{a}/mine/{i}", b"")
    assert os.path.exists(f"{a}/mine/{i}") and os.fstat(dir_a).st_size == i + 1
    if i % 3 == 0:
        os.unlink(f"{a}/mine/{i}")
        assert not os.path.exists(f"{a}/mine/{i}")
        write(f"{a}/mine/{i}", b"")
    if i % 7 == 0:
        os.rename(f"{a}/mine/{i}", f"{a}/mine/was{i}")
        assert not os.path.exists(f"{a}/mine/{i}") and os.path.exists(f"{a}/mine/was{i}")
        os.rename(f"{a}/mine/was{i}", f"{a}/mine/{i}")
for i in range(40):
    os.mkdir(f"{a}/mine/sub{i}")
assert os.fstat(dir_a).st_nlink == 42
for i in range(40):
    os.rmdir(f"{a}/mine/sub{i}")
os.link(f"{a}/mine/1", f"{a}/mine/linked")
os.symlink("1", f"{a}/mine/symlink")
os.rename(f"{a}/two", f"{a}/mine/came")
assert all(os.path.lexists(f"{a}/mine/{n}") for n in ("linked", "symlink", "came"))
assert sorted(os.listdir(f"{a}/mine")) == sorted([str(i) for i in range(300)] + ["linked", "symlink", "came"])
within("what is in it", lambda: os.stat(f"{a}/mine").st_size == 303 and os.stat(f"{b}/mine").st_size == 303)
os.utime(f"{a}/mine", (1, 4_000_000_000))
assert os.fstat(dir_a).st_mtime == 4_000_000_000
write(f"{a}/mine/later", b"")
assert abs(os.fstat(dir_a).st_mtime - time.time()) < 100
os.close(dir_a)
for round in range(3):
    made, elsewhere = f"{a}/busy{round}", f"{b}/busy{round}"
    os.mkdir(made)
    within("a new directory", lambda elsewhere=elsewhere: os.path.exists(elsewhere))
    write(f"{b}/from{round}", b"")
    here = 0

    def goes_on(name):
        """Creates here all the time what is needed to be told that nothing else changed, and looks for what the other made."""
        global here
        write(f"{made}/n{here}", b"")
        here += 1
        return os.path.exists(f"{made}/{name}")

    assert not goes_on("theirs") and not goes_on("moved") and not goes_on("linked")
    write(f"{elsewhere}/theirs", b"")
    within("a file that another mount makes in a busy directory", lambda: goes_on("theirs"))
    os.rename(f"{b}/from{round}", f"{elsewhere}/moved")
    within("a file that another mount moves into a busy directory", lambda: goes_on("moved"))
    os.link(f"{elsewhere}/moved", f"{elsewhere}/linked")
    within("a second name in a busy directory", lambda: goes_on("linked"))
    os.unlink(f"{elsewhere}/theirs")
    within("a removal in a busy directory", lambda: not goes_on("theirs"))
    within("the count", lambda: os.stat(made).st_size == here + 2)
    assert len(os.listdir(made)) == here + 2

# What a mount was told it does not deny: two that make the same directories and lock files side by side.
for i in range(100):
    os.mkdir(f"{a}/both{i}")
    os.stat(f"{a}/both{i}")
    if i == 0:
        assert not os.path.exists(f"{a}/both{i}/x")
    end = time.monotonic() + TIMEOUT + 0.5
    while True:
        try:
            os.mkdir(f"{b}/both{i}/x")
            break
        except FileNotFoundError:
            assert time.monotonic() < end
    os.makedirs(f"{a}/both{i}/x", exist_ok=True)
    write(f"{b}/both{i}/lock", b"b")
    try:
        os.open(f"{a}/both{i}/lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        raise AssertionError("two have the lock")
    except FileExistsError:
        assert read(f"{a}/both{i}/lock") == b"b"
    assert sorted(os.listdir(f"{a}/both{i}")) == ["lock", "x"]
