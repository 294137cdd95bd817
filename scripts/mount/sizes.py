"""Sizes nobody has room for, and offsets past the largest: what is refused changes nothing. Small files and large ones."""
import ctypes
import errno
import os
import sys

at = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
MOST = (1 << 63) - 1
KEEP, PUNCH, ZERO = 1, 2, 16
off = ctypes.c_int64


def call(name, *args):
    done = getattr(libc, name)(*args)
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return done


def fallocate(fd, mode, offset, length):
    call("fallocate", fd, mode, off(offset), off(length))


def ftruncate(fd, size):
    call("ftruncate", fd, off(size))


def pwrite(fd, data, offset):
    libc.pwrite.restype = ctypes.c_ssize_t
    return call("pwrite", fd, data, ctypes.c_size_t(len(data)), off(offset))


def copy(a, from_, b, to, length):
    libc.copy_file_range.restype = ctypes.c_ssize_t
    return call("copy_file_range", a, ctypes.byref(off(from_)), b, ctypes.byref(off(to)), ctypes.c_size_t(length), 0)


def refused(why, f, *args):
    whys = why if isinstance(why, tuple) else (why,)
    try:
        done = f(*args)
    except OSError as e:
        assert e.errno in whys, f"{f.__name__}{args}: {e}, not {errno.errorcode[whys[0]]}"
    else:
        raise AssertionError(f"{f.__name__}{args} gave {done}, not {errno.errorcode[whys[0]]}")


for size in (0, 100, 70_000, 5 << 20):
    data = os.urandom(size)
    path = f"{at}/file{size}"
    with open(path, "wb") as f:
        f.write(data)
    fd = os.open(path, os.O_RDWR)

    def same():
        """Nothing has changed, here and for who opens it now."""
        assert os.fstat(fd).st_size == os.stat(path).st_size == size, (size, os.fstat(fd).st_size)
        assert os.pread(fd, size + 1, 0) == data
        with open(path, "rb") as f:
            assert f.read() == data

    # More than any disk has.
    for mode in (0, KEEP, ZERO, ZERO | KEEP):
        for offset, length in ((0, 1 << 60), (size, 1 << 60), (1 << 60, 1 << 60), (0, MOST), (1, MOST - 1)):
            refused(errno.ENOSPC, fallocate, fd, mode, offset, length)
        for offset, length in ((1, MOST), (MOST, 1), (MOST, MOST), (1 << 62, 1 << 62)):
            refused(errno.EFBIG, fallocate, fd, mode, offset, length)
        refused(errno.EINVAL, fallocate, fd, mode, 0, 0)
        refused(errno.EINVAL, fallocate, fd, mode, -1, 1)
    same()
    # A hole needs no room.
    for offset, length in ((size, 1 << 60), (size, MOST - size), (1 << 60, 1 << 60)):
        fallocate(fd, PUNCH | KEEP, offset, length)
    refused(errno.EFBIG, fallocate, fd, PUNCH | KEEP, 1, MOST)
    same()
    # The largest size can be read back; past it there is nothing.
    # (The kernel says EINVAL to an offset whose end no number can say.)
    refused(errno.EINVAL, pwrite, fd, b"x", MOST)
    refused(errno.EINVAL, ftruncate, fd, -1)
    same()
    for grown in (1 << 40, 1 << 60, MOST):
        ftruncate(fd, grown)
        assert os.fstat(fd).st_size == grown
        assert os.pread(fd, 5, grown - 5) == bytes(5)
        assert os.pread(fd, size + 5, 0)[:size] == data
    assert pwrite(fd, b"end", MOST - 3) == 3
    assert os.pread(fd, 5, MOST - 5) == b"\0\0end"
    os.close(fd)
    fd = os.open(path, os.O_RDWR)
    assert os.pread(fd, 3, MOST - 3) == b"end" and os.pread(fd, size, 0) == data
    assert os.lseek(fd, size or 0, os.SEEK_DATA) > 0
    fallocate(fd, PUNCH | KEEP, size, MOST - size)
    assert os.pread(fd, 3, MOST - 3) == bytes(3) and os.pread(fd, size, 0) == data
    ftruncate(fd, size)
    same()

    source = os.open(f"{at}/source", os.O_RDWR | os.O_CREAT)
    os.pwrite(source, b"s" * 1000, 0)
    refused((errno.EFBIG, errno.EOVERFLOW, errno.EINVAL), copy, source, 0, fd, MOST, 1)
    same()
    assert copy(source, 0, fd, 1 << 60, 1000) == 1000
    assert os.pread(fd, 1001, 1 << 60) == b"s" * 1000 and os.fstat(fd).st_size == (1 << 60) + 1000
    ftruncate(fd, size)
    same()

    # What there is room for.
    fallocate(fd, KEEP, 0, size + 100_000)
    same()
    fallocate(fd, 0, 0, size + 100_000)
    assert os.pread(fd, size + 200_000, 0) == data + bytes(100_000)
    ftruncate(fd, size)
    fallocate(fd, ZERO, size // 2, size + 10)
    zeroed = data[: size // 2] + bytes(size + 10)
    assert os.pread(fd, 2 * size + 100, 0) == zeroed
    os.close(source)
    os.close(fd)
    with open(path, "rb") as f:
        assert f.read() == zeroed
    os.unlink(path)
    os.unlink(f"{at}/source")
