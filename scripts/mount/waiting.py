#!/usr/bin/env python3
"""Attributes of files that are being made.

waiting.py HERE THERE     HERE makes them; THERE is another mount's view of that directory, which believes nothing
waiting.py write FILE     makes it, sets its attributes, says so, and keeps it open
"""
import os
import sys
import time

from users import as_user

OLD = 1_500_000_000


def shown(at):
    s = os.stat(at)
    return s.st_mode & 0o7777, s.st_uid, s.st_gid, s.st_mtime, s.st_size


def make(path, mode=0o600):
    f = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
    os.write(f, b"bytes")
    return f


def set_all(f, mode=0o644):
    """As tar and cp do."""
    os.utime(f, (OLD - 5, OLD))
    if os.getuid() == 0:
        os.fchown(f, 1234, 2345)
    os.fchmod(f, mode)


def whole(mode=0o644):
    uid, gid = (1234, 2345) if os.getuid() == 0 else (os.getuid(), os.getgid())
    return mode, uid, gid, OLD, 5


def closed(here, there):
    """Here at once, by any way; there when it was closed."""
    for n in range(20):
        f = make(f"{here}/a{n}")
        set_all(f)
        for s in (os.fstat(f), os.stat(f"{here}/a{n}"), next(e for e in os.scandir(here) if e.name == f"a{n}").stat()):
            assert (s.st_mode & 0o7777, s.st_uid, s.st_gid, s.st_mtime, s.st_size) == whole(), s
            assert s.st_atime == OLD - 5
        os.close(f)
        assert shown(f"{there}/a{n}") == whole(), shown(f"{there}/a{n}")
        assert os.stat(f"{there}/a{n}").st_atime == OLD - 5
        assert shown(f"{here}/a{n}") == whole()


def others(here, there):
    """Whatever else is done to it comes after what waited."""
    steps = {
        "fsync": lambda f, name: os.fsync(f),
        "rename": lambda f, name: os.rename(f"{here}/{name}", f"{here}/{name}.new"),
        "link": lambda f, name: os.link(f"{here}/{name}", f"{here}/{name}.new"),
        "open": lambda f, name: os.close(os.open(f"{here}/{name}", os.O_RDONLY)),
        "create": lambda f, name: os.close(os.open(f"{here}/{name}", os.O_RDONLY | os.O_CREAT, 0o600)),
        "timeout": lambda f, name: time.sleep(1.2),
    }
    for what, step in steps.items():
        f = make(f"{here}/b{what}")
        set_all(f)
        step(f, f"b{what}")
        at = f"{there}/b{what}" + (".new" if what in ("rename", "link") else "")
        assert shown(at) == whole(), (what, shown(at))
        os.close(f)
        assert shown(at) == whole(), (what, shown(at))
    f = make(f"{here}/gone")
    set_all(f)
    os.unlink(f"{here}/gone")
    assert os.fstat(f).st_mtime == OLD and os.fstat(f).st_nlink == 0
    os.close(f)
    assert not os.path.exists(f"{there}/gone")
    # Later writes and truncations move the time again.
    for what, step in (("write", lambda f: os.write(f, b"!")), ("cut", lambda f: os.ftruncate(f, 2))):
        f = make(f"{here}/c{what}")
        set_all(f)
        step(f)
        os.close(f)
        assert shown(f"{there}/c{what}")[3] > OLD and shown(f"{there}/c{what}")[:3] == whole()[:3]
        assert abs(shown(f"{here}/c{what}")[3] - shown(f"{there}/c{what}")[3]) < 1
    # Nothing but the time, of an empty file.
    f = os.open(f"{here}/empty", os.O_CREAT | os.O_WRONLY, 0o644)
    os.utime(f, (OLD, OLD))
    os.close(f)
    assert shown(f"{there}/empty")[3] == OLD
    f = make(f"{here}/twice")
    set_all(f)
    os.fchmod(f, 0o600)
    os.close(f)
    assert shown(f"{there}/twice") == whole(0o600)


def nobody_sees_more(here, there):
    """Bits that are taken away, and a group that changes, are told before the bytes."""
    f = make(f"{here}/tight", 0o644)
    os.fchmod(f, 0o600)
    assert shown(f"{there}/tight")[0] == 0o600
    os.close(f)
    f = make(f"{here}/special")
    os.fchmod(f, 0o4755)
    os.close(f)
    assert shown(f"{there}/special")[0] == 0o4755
    if os.getuid() != 0:
        return
    f = make(f"{here}/group", 0o660)
    os.fchown(f, 0, 77)
    assert shown(f"{there}/group")[2] == 77
    os.close(f)
    # Errors are told at the call.
    os.chmod(here, 0o777)

    def user():
        f = make("mine")
        for call in (lambda: os.fchown(f, 5, -1), lambda: os.fchown(f, -1, 5)):
            try:
                call()
                raise AssertionError("it was given away")
            except PermissionError:
                pass
        os.utime(f, (OLD, OLD))
        os.fchmod(f, 0o640)
        os.close(f)

    assert (told := as_user(12345, 12345, [], user, here)) is None, told
    assert shown(f"{there}/mine") == (0o640, 12345, 12345, OLD, 5)


if sys.argv[1] == "write":
    f = make(sys.argv[2])
    os.utime(f, (OLD, OLD))
    os.fchmod(f, 0o644)
    print("ready", flush=True)
    time.sleep(100)
else:
    os.umask(0)
    for step in (closed, others, nobody_sees_more):
        began = time.monotonic()
        step(*sys.argv[1:])
        print(f"{step.__name__}: {time.monotonic() - began:.1f} s", flush=True)
