"""st_blocks of files with holes, as they are written, cut and copied: here at once, on another mount after its timeout."""
import ctypes
import os
import subprocess
import sys
import time

here, there, patience = sys.argv[1], sys.argv[2], float(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
KEEP, PUNCH, ZERO = 1, 2, 16
MIB = 1 << 20
RW = os.O_RDWR | os.O_CREAT
for name in os.listdir(here):
    os.unlink(f"{here}/{name}")
expected = {}


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def is_(what, stat, size, stored):
    assert stat.st_size == size, (what, stat.st_size, size)
    assert stat.st_blocks == -(-stored // 512), (what, stat.st_blocks * 512, stored)


def shows(fd, name, size, stored):
    """Through the handle, by path, in a listing: before it is closed; then there, later."""
    is_(f"fstat of {name}", os.fstat(fd), size, stored)
    is_(f"stat of {name}", os.stat(f"{here}/{name}"), size, stored)
    expected[name] = (size, stored)


def same_there():
    """All files, as the other mount shows them: by name and in a listing."""
    time.sleep(patience)
    for at in (there, here):
        for entry in os.scandir(at):
            if entry.name in expected:
                is_(f"listed: {at}/{entry.name}", entry.stat(follow_symlinks=False), *expected[entry.name])
        for name, (size, stored) in expected.items():
            is_(f"{at}/{name}", os.stat(f"{at}/{name}"), size, stored)


def far():
    fd = os.open(f"{here}/far", RW)
    os.pwrite(fd, b"x" * 4096, 200 * MIB)
    shows(fd, "far", 200 * MIB + 4096, 4096)
    os.fsync(fd)
    shows(fd, "far", 200 * MIB + 4096, 4096)
    os.close(fd)


def empty():
    fd = os.open(f"{here}/empty", RW)
    os.ftruncate(fd, 1 << 30)
    shows(fd, "empty", 1 << 30, 0)
    os.close(fd)


def small():
    fd = os.open(f"{here}/small", RW)
    os.write(fd, b"five.")
    shows(fd, "small", 5, 5)
    os.ftruncate(fd, 1 << 30)
    shows(fd, "small", 1 << 30, 5)
    os.ftruncate(fd, 3)
    shows(fd, "small", 3, 3)
    os.ftruncate(fd, 1 << 20)
    shows(fd, "small", 1 << 20, 3)
    os.close(fd)


def dense():
    """Cut up and down, by handle and by path, while it is open and while nobody has it open."""
    path = f"{here}/dense"
    fd = os.open(path, RW)
    os.write(fd, b"d" * (10 * MIB))
    shows(fd, "dense", 10 * MIB, 10 * MIB)
    os.ftruncate(fd, 100 * MIB)
    shows(fd, "dense", 100 * MIB, 10 * MIB)
    os.ftruncate(fd, 6 * MIB)
    shows(fd, "dense", 6 * MIB, 6 * MIB)
    os.truncate(path, 50 * MIB)
    shows(fd, "dense", 50 * MIB, 6 * MIB)
    os.pwrite(fd, b"e" * MIB, 40 * MIB)
    shows(fd, "dense", 50 * MIB, 7 * MIB)
    os.truncate(path, 5 * MIB)
    shows(fd, "dense", 5 * MIB, 5 * MIB)
    os.close(fd)
    os.truncate(path, 30 * MIB)
    is_("cut by path", os.stat(path), 30 * MIB, 5 * MIB)
    os.truncate(path, 1 * MIB)
    is_("cut by path", os.stat(path), 1 * MIB, 1 * MIB)
    os.truncate(path, 1 << 40)
    is_("cut by path", os.stat(path), 1 << 40, 1 * MIB)
    expected["dense"] = (1 << 40, MIB)


def punched():
    fd = os.open(f"{here}/punched", RW)
    os.write(fd, b"p" * (12 * MIB))
    fallocate(fd, PUNCH | KEEP, 4 * MIB, 4 * MIB)
    shows(fd, "punched", 12 * MIB, 8 * MIB)
    os.pwrite(fd, b"q" * MIB, 4 * MIB)
    shows(fd, "punched", 12 * MIB, 9 * MIB)
    os.fsync(fd)
    os.pwrite(fd, b"r" * MIB, 4 * MIB)
    shows(fd, "punched", 12 * MIB, 9 * MIB)
    os.pwrite(fd, b"q" * (3 * MIB), 5 * MIB)
    shows(fd, "punched", 12 * MIB, 12 * MIB)
    fallocate(fd, ZERO, 3 * MIB, 6 * MIB)
    os.fsync(fd)
    assert os.pread(fd, 12 * MIB, 0) == b"p" * (3 * MIB) + bytes(6 * MIB) + b"p" * (3 * MIB)
    assert os.fstat(fd).st_blocks * 512 < 9 * MIB
    fallocate(fd, PUNCH | KEEP, MIB, 1 << 40)
    shows(fd, "punched", 12 * MIB, MIB)
    # Room is not set aside.
    fallocate(fd, 0, 0, 20 * MIB)
    shows(fd, "punched", 20 * MIB, MIB)
    os.close(fd)


def copied():
    source = f"{here}/from"
    fd = os.open(source, RW)
    for at in (0, 40 * MIB, 80 * MIB):
        os.pwrite(fd, os.urandom(65536), at)
    os.ftruncate(fd, 100 * MIB)
    os.close(fd)
    is_("from", os.stat(source), 100 * MIB, 3 * 65536)

    def copy(name, *command):
        subprocess.run(command, check=True, cwd=here)
        subprocess.run(["cmp", source, f"{here}/{name}"], check=True)
        stored = os.stat(f"{here}/{name}").st_blocks * 512
        assert stored <= 3 * 4 * MIB, f"{name}: {command} made {stored} bytes of {3 * 65536}"
        expected[name] = (100 * MIB, stored)

    copy("by-cp", "cp", "-a", "from", "by-cp")
    copy("by-cp-always", "cp", "--sparse=always", "from", "by-cp-always")
    copy("by-tar", "sh", "-c", "mkdir t && tar -cSf t.tar from && tar -C t -xSf t.tar && mv t/from by-tar && rm -r t t.tar")
    if subprocess.run(["which", "rsync"], capture_output=True).returncode == 0:
        copy("by-rsync", "rsync", "--sparse", "from", "by-rsync")
    a, b = os.open(source, os.O_RDONLY), os.open(f"{here}/by-range", RW)
    left = 100 * MIB
    while left > 0:
        left -= os.copy_file_range(a, b, left)
    os.close(a)
    os.close(b)
    copy("by-range", "true")
    assert expected["by-cp"][1] == expected["by-range"][1] == 3 * 65536, expected
    os.link(source, f"{here}/linked")
    os.rename(source, f"{here}/renamed")
    expected["linked"] = expected["renamed"] = (100 * MIB, 3 * 65536)
    out = subprocess.run(["du", "-k", "renamed", "far"], check=True, cwd=here, capture_output=True, text=True).stdout
    assert out.split() == ["192", "renamed", "4", "far"], out


def both():
    """One writes in a hole of what the other has open; who looks sees both."""
    a = os.open(f"{here}/both", RW)
    os.ftruncate(a, 100 * MIB)
    os.pwrite(a, b"a" * 4096, 20 * MIB)
    os.fsync(a)
    b = os.open(f"{there}/both", os.O_RDWR)
    os.pwrite(b, b"b" * 4096, 40 * MIB)
    os.pwrite(a, b"a" * 4096, 60 * MIB)
    os.close(b)
    os.close(a)
    expected["both"] = (100 * MIB, 3 * 4096)
    assert os.stat(f"{here}/both").st_blocks == 24, os.stat(f"{here}/both").st_blocks


far()
empty()
small()
dense()
punched()
copied()
both()
same_there()
# What was cut on one mount while the other has it open.
fd = os.open(f"{there}/far", os.O_RDONLY)
os.truncate(f"{here}/far", 100 * MIB)
expected["far"] = (100 * MIB, 0)
same_there()
is_("fstat there", os.fstat(fd), 100 * MIB, 0)
os.close(fd)
far()
same_there()
