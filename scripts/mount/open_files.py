"""Files open on one mount while the other takes their names. open_files.py A B plain | kills STOP"""
import os
import random
import sys
import time

a, b, mode = sys.argv[1:4]
rand = random.Random(97)


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def seen(path):
    """The other mount may believe for a second that there is no such name."""
    end = time.monotonic() + 5
    while not os.path.exists(path):
        assert time.monotonic() < end, path
        time.sleep(0.05)


def fresh(name):
    for top in (a,):
        os.makedirs(f"{top}/open/{name}/to", exist_ok=True)
    seen(f"{b}/open/{name}/to")


def rename_away(d, name):
    os.rename(f"{b}/{d}/{name}", f"{b}/{d}/to/{name}-away")
    return f"{d}/to/{name}-away"


def rename_here(d, name):
    os.rename(f"{b}/{d}/{name}", f"{b}/{d}/{name}-new")
    return f"{d}/{name}-new"


def replace(d, name):
    write(f"{b}/{d}/{name}.tmp", b"another")
    os.replace(f"{b}/{d}/{name}.tmp", f"{b}/{d}/{name}")
    return None


def replace_from_elsewhere(d, name):
    write(f"{b}/{d}/to/{name}.tmp", b"another")
    os.replace(f"{b}/{d}/to/{name}.tmp", f"{b}/{d}/{name}")
    return None


def remove(d, name):
    os.unlink(f"{b}/{d}/{name}")
    return None


def link_and_remove(d, name):
    os.link(f"{b}/{d}/{name}", f"{b}/{d}/to/{name}-linked")
    os.unlink(f"{b}/{d}/{name}")
    return f"{d}/to/{name}-linked"


def link_and_remove_both(d, name):
    left = link_and_remove(d, name)
    os.unlink(f"{b}/{left}")
    return None


TAKE = [rename_away, rename_here, replace, replace_from_elsewhere, remove, link_and_remove, link_and_remove_both]


def use(fd, data, at, ino):
    """Everything a program does with a file that it has open."""
    size = len(data)
    assert os.pread(fd, size + 1, 0) == data, "it reads something else"
    at_end = rand.randbytes(rand.choice((10, 5000, 70_000)))
    assert os.pwrite(fd, at_end, size) == len(at_end)
    data += at_end
    st = os.fstat(fd)
    assert (st.st_size, st.st_ino) == (len(data), ino), (st, len(data), ino)
    os.fsync(fd)
    os.fchmod(fd, 0o640)
    assert os.fstat(fd).st_mode & 0o777 == 0o640
    cut = len(data) // 2
    os.ftruncate(fd, cut)
    data = data[:cut]
    assert os.fstat(fd).st_size == cut
    os.utime(fd, (5, 7))
    assert os.fstat(fd).st_mtime == 7
    os.setxattr(fd, "user.open", b"yes")
    assert os.getxattr(fd, "user.open") == b"yes"
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    assert os.pread(again, cut + 1, 0) == data
    data += b"through another"
    os.pwrite(again, b"through another", cut)
    os.close(again)
    assert os.pread(fd, len(data) + 1, 0) == data
    st = os.fstat(fd)
    assert st.st_nlink == (1 if at else 0), (st.st_nlink, at)
    os.fsync(fd)
    return data


def round(n, wait=None):
    d = f"open/{n}"
    fresh(str(n))
    fds = []
    for take in TAKE:
        for size in (0, 300, 100_000, 9_000_000 if mode == "plain" and n == 0 else 5):
            name = f"{take.__name__}-{size}"
            data = rand.randbytes(size)
            path = f"{a}/{d}/{name}"
            write(path, data)
            fd = os.open(path, os.O_RDWR)
            ino = os.fstat(fd).st_ino
            seen(f"{b}/{d}/{name}")
            fds.append((fd, data, take(d, name), ino, name))
    if wait:
        wait()
    for i, (fd, data, left, ino, name) in enumerate(fds):
        try:
            data = use(fd, data, left, ino)
        except (OSError, AssertionError) as e:
            raise AssertionError(f"{name}: {e}") from e
        os.close(fd)
        if left:
            with open(f"{b}/{left}", "rb") as f:
                assert f.read() == data, f"{name} on the other mount"
            os.unlink(f"{b}/{left}")
    # What replaced them is whole.
    for name in os.listdir(f"{b}/{d}"):
        if name != "to":
            with open(f"{b}/{d}/{name}", "rb") as f:
                assert f.read() == b"another", name
            os.unlink(f"{b}/{d}/{name}")
    return len(fds)


def unnamed():
    """O_TMPFILE: no name, until it is given one."""
    d = f"{a}/open"
    before = os.stat(d)
    fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o640)
    st = os.fstat(fd)
    assert (st.st_nlink, st.st_size, st.st_mode & 0o777) == (0, 0, 0o640), st
    data = rand.randbytes(200_000)
    assert os.pwrite(fd, data, 0) == len(data)
    os.fsync(fd)
    os.setxattr(fd, "user.tmp", b"1")
    after = os.stat(d)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns), "the directory has not changed"
    os.link(f"/proc/self/fd/{fd}", f"{d}/tmpfile", src_dir_fd=fd, follow_symlinks=True)
    assert os.fstat(fd).st_nlink == 1 and os.fstat(fd).st_ino == os.stat(f"{d}/tmpfile").st_ino
    os.pwrite(fd, b"later", 0)
    os.close(fd)
    seen(f"{b}/open/tmpfile")
    with open(f"{b}/open/tmpfile", "rb") as f:
        assert f.read() == b"later" + data[5:]
    assert os.getxattr(f"{b}/open/tmpfile", "user.tmp") == b"1"
    os.unlink(f"{b}/open/tmpfile")
    # One that nobody may name, one that nobody does.
    for flags in (os.O_EXCL, 0):
        fd = os.open(d, os.O_TMPFILE | os.O_WRONLY | flags, 0o600)
        os.write(fd, data)
        if flags:
            try:
                os.link(f"/proc/self/fd/{fd}", f"{d}/tmpfile", src_dir_fd=fd, follow_symlinks=True)
                raise AssertionError("it was linked")
            except FileNotFoundError:
                pass
        os.close(fd)


def relatime():
    """A read moves the atime if that is not later than the last change; the other mount sees it soon."""
    path = f"{a}/open/read"
    write(path, b"x" * 1000)
    os.utime(path, (1000, 2000))
    before = os.stat(path)
    with open(path, "rb") as f:
        f.read()
    read = os.stat(path)
    assert read.st_atime > before.st_ctime - 1 and read.st_atime > 2000, read
    assert (read.st_mtime, read.st_ctime_ns) == (2000, before.st_ctime_ns), read
    end = time.monotonic() + 10
    while os.stat(f"{b}/open/read").st_atime < before.st_ctime - 1:
        assert time.monotonic() < end, "the other mount does not see it"
        time.sleep(0.1)
    # Once read it stays as it is.
    time.sleep(2.5)
    settled = os.stat(path).st_atime_ns
    with open(path, "rb") as f:
        f.read()
    time.sleep(2.5)
    assert os.stat(path).st_atime_ns == settled == os.stat(f"{b}/open/read").st_atime_ns
    os.utime(path, (1000, 2000))
    assert os.stat(path).st_atime == 1000
    os.unlink(path)


total = 0
if mode == "plain":
    os.makedirs(f"{a}/open", exist_ok=True)
    unnamed()
    relatime()
    for n in range(3):
        total += round(n)
    # Two mounts have it open, and a third name of nobody: the last to close it ends it.
    write(f"{a}/open/both", b"x" * 1000)
    seen(f"{b}/open/both")
    one, two = os.open(f"{a}/open/both", os.O_RDWR), os.open(f"{b}/open/both", os.O_RDWR)
    os.unlink(f"{a}/open/both")
    os.pwrite(one, b"one", 0)
    os.fsync(one)
    # Attributes may be believed for a second.
    end = time.monotonic() + 5
    while os.fstat(two).st_nlink != 0:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.close(one)
    again = os.open(f"/proc/self/fd/{two}", os.O_RDONLY)
    assert os.pread(again, 3, 0) == b"one"
    os.close(again)
    os.close(two)
else:
    stop = sys.argv[4]
    n = 0
    while not os.path.exists(stop) or n == 0:
        total += round(n, wait=lambda: time.sleep(1.5))
        n += 1
print(f"{total} open files")
