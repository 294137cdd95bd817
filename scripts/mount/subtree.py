"""A mount whose root is a subtree.

subtree.py root WHOLE MOUNT SECONDS   the root as such; WHOLE: the same directory on a mount of everything; SECONDS: how long names are believed
subtree.py out WHOLE MOUNT SECONDS    nothing leads out
subtree.py users MOUNT                of an identity that may act for the users 4001 and 4002, in the groups 4001, 4002 and 4009
subtree.py gone MOUNT ERROR...        everything fails, with one of these errors
"""

import errno
import fcntl
import os
import stat
import sys
import time

from users import as_user

A, B, C, GROUP, OTHER = 4001, 4002, 4003, 4009, 4010
wrong = []


def same(wanted, what, got):
    if got != wanted:
        wrong.append(f"{what}: {got}, not {wanted}")


def error(call):
    try:
        call()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok"


def soon(seconds, what, test):
    """True at the latest when what is believed is not any more."""
    end = time.monotonic() + seconds + 1
    while not test():
        if time.monotonic() > end:
            wrong.append(f"{what} is not seen after {seconds} s")
            return
        time.sleep(0.02)


def put(path, data=b"x"):
    with open(path, "wb") as f:
        f.write(data)


def acl(user, bits):
    """A list that gives one user these bits, as the kernel has it."""
    entries = [(1, 7, 0xFFFFFFFF), (2, bits, user), (4, 5, 0xFFFFFFFF), (16, 7, 0xFFFFFFFF), (32, 5, 0xFFFFFFFF)]
    packed = [t.to_bytes(2, "little") + p.to_bytes(2, "little") + u.to_bytes(4, "little") for t, p, u in entries]
    return (2).to_bytes(4, "little") + b"".join(packed)


def root(whole, mount, seconds):
    before = os.stat(mount)
    same(os.stat(whole).st_ino, "number of the root", before.st_ino)
    same(True, "root", stat.S_ISDIR(before.st_mode))
    same(os.statvfs(whole).f_blocks, "size", os.statvfs(mount).f_blocks)
    here = lambda f: (f(mount), f(whole))
    changes = [
        ("mode", lambda: os.chmod(mount, 0o1750), lambda p: os.stat(p).st_mode & 0o7777, 0o1750),
        ("owner", lambda: os.chown(mount, A, GROUP), lambda p: (os.stat(p).st_uid, os.stat(p).st_gid), (A, GROUP)),
        ("mtime", lambda: os.utime(mount, (5, 6)), lambda p: os.stat(p).st_mtime, 6.0),
        ("attribute", lambda: os.setxattr(mount, "user.a", b"b"), lambda p: error(lambda: os.getxattr(p, "user.a")), "ok"),
        ("names", lambda: None, os.listxattr, ["user.a"]),
        ("no attribute", lambda: os.removexattr(mount, "user.a"), os.listxattr, []),
        (
            "list",
            lambda: os.setxattr(mount, "system.posix_acl_access", acl(B, 7)),
            lambda p: error(lambda: os.getxattr(p, "system.posix_acl_access")),
            "ok",
        ),
    ]
    for what, change, look, wanted in changes:
        same("ok", f"change of {what}", error(change))
        same(wanted, what, look(mount))
        soon(seconds, what, lambda: here(look) == (wanted, wanted))
    same(None, "make by who is in the list", as_user(B, B, [], lambda: put("by-b"), mount))
    os.removexattr(mount, "system.posix_acl_access")
    top = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    os.fchmod(top, 0o755)
    os.utime(top)
    os.fchown(top, before.st_uid, before.st_gid)
    os.fsync(top)
    fcntl.flock(top, fcntl.LOCK_EX)
    os.close(os.open(mount, os.O_TMPFILE | os.O_RDWR))
    os.chmod(mount, 0o700)
    same("EACCES", "make in a root that is closed", as_user(C, C, [], lambda: put(f"{mount}/by-c")))
    os.chmod(mount, 0o755)
    links = os.fstat(top).st_nlink
    os.mkdir(f"{mount}/dir")
    same(links + 1, "links", os.fstat(top).st_nlink)
    same(before.st_ino, "..", os.stat(f"{mount}/dir/..").st_ino)
    same(before.st_ino, "number of .. in a listing", listed(f"{mount}/dir")[".."])
    same({".": before.st_ino, "..": before.st_ino}, "numbers in the root", {n: listed(mount)[n] for n in (".", "..")})
    soon(seconds, "what is made", lambda: "dir" in os.listdir(whole))
    put(f"{whole}/outside-in")
    soon(seconds, "what others make", lambda: os.path.exists(f"{mount}/outside-in"))
    os.rename(f"{mount}/outside-in", f"{mount}/dir/in")
    os.rename(f"{mount}/dir/in", f"{mount}/by-b")
    os.unlink(f"{mount}/by-b")
    os.rmdir(f"{mount}/dir")
    same([], "what is left", os.listdir(top))
    same(links, "links", os.fstat(top).st_nlink)
    # What is above it is the machine's.
    same("EBUSY", "rmdir of the root", error(lambda: os.rmdir(mount)))
    same("EBUSY", "rename of the root", error(lambda: os.rename(mount, f"{mount}.other")))
    os.close(top)


def listed(path):
    """Numbers as a listing has them."""
    import ctypes

    class Entry(ctypes.Structure):
        _fields_ = [
            ("ino", ctypes.c_uint64),
            ("off", ctypes.c_int64),
            ("len", ctypes.c_uint16),
            ("kind", ctypes.c_uint8),
            ("name", ctypes.c_char * 256),
        ]

    libc = ctypes.CDLL(None)
    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.POINTER(Entry)
    folder = ctypes.c_void_p(libc.opendir(path.encode()))
    numbers = {}
    while entry := libc.readdir(folder):
        numbers[entry.contents.name.decode()] = entry.contents.ino
    libc.closedir(folder)
    return numbers


def out(whole, mount, seconds):
    """A file with a name outside, too; directories that others move out and in while they are open; links and names that would lead out."""
    above = os.path.dirname(whole)
    number = os.stat(mount).st_ino
    put(f"{mount}/file", b"one")
    os.link(f"{whole}/file", f"{above}/file-outside")
    soon(seconds, "second name", lambda: os.stat(f"{mount}/file").st_nlink == 2)
    put(f"{mount}/file", b"two")
    same(b"two", "what is written inside", open(f"{above}/file-outside", "rb").read())
    same("EXDEV", "link in from the other mount", error(lambda: os.link(f"{above}/file-outside", f"{mount}/in")))
    same("EXDEV", "rename out to the other mount", error(lambda: os.rename(f"{mount}/file", f"{above}/file-out")))
    os.unlink(f"{mount}/file")
    same(1, "links that are left", os.stat(f"{above}/file-outside").st_nlink)
    os.unlink(f"{above}/file-outside")
    # An absolute link means the machine's root, as everywhere.
    os.symlink("/people", f"{mount}/link")
    same("/people", "link", os.readlink(f"{mount}/link"))
    same(os.path.exists("/people"), "where it leads", os.path.exists(f"{mount}/link"))
    os.unlink(f"{mount}/link")
    os.makedirs(f"{mount}/open/deep")
    put(f"{mount}/open/file")
    held = os.open(f"{mount}/open/deep", os.O_RDONLY | os.O_DIRECTORY)
    os.rename(f"{whole}/open", f"{above}/moved-out")
    soon(seconds, "that it is not there", lambda: not os.path.exists(f"{mount}/open"))
    same([], "what is open", os.listdir(held))
    # Upwards it leads where it led: never above the root.
    fd = held
    for _ in range(4):
        up = os.open("..", os.O_PATH | os.O_DIRECTORY, dir_fd=fd)
        at = os.fstat(up)
        if at.st_dev != os.stat(mount).st_dev:
            break
        same(True, "a directory of the subtree, or what was moved out of it", at.st_ino in (number, os.stat(f"{above}/moved-out").st_ino))
        fd = up
    os.rename(f"{above}/moved-out", f"{whole}/open")
    soon(seconds, "that it is there again", lambda: os.path.exists(f"{mount}/open/file"))
    os.close(held)
    os.unlink(f"{mount}/open/file")
    os.rmdir(f"{mount}/open/deep")
    os.rmdir(f"{mount}/open")


def users(mount):
    def own(uid):
        os.mkdir(f"of-{uid}", 0o700)
        os.chdir(f"of-{uid}")
        for data in (b"small", b"large" * 100_000):
            put("file", data)
            with open("file", "ab") as f:
                f.write(b"more")
            assert open("file", "rb").read() == data + b"more"
        os.rename("file", "other")
        os.mkdir("dir")
        os.link("other", "dir/link")
        assert os.stat("dir/link").st_nlink == 2 and os.stat("other").st_uid == uid
        assert sorted(e.name for e in os.scandir(".") if e.stat().st_uid == uid) == ["dir", "other"]
        os.setxattr("other", "user.a", b"b")
        with open("other", "rb") as f:
            fcntl.lockf(os.open("other", os.O_RDWR), fcntl.LOCK_EX)
            fcntl.flock(f, fcntl.LOCK_SH)
        os.truncate("other", 10)
        os.chmod("other", 0o600)
        os.utime("other", (1, 2))
        assert os.stat("other").st_mtime == 2
        os.unlink("dir/link")
        os.rmdir("dir")

    # Groups that the identity does not have are not said: they would be refused.
    for uid, groups in ((A, [GROUP, OTHER]), (B, [GROUP, 24, 27])):
        same(None, f"work of {uid}", as_user(uid, uid, groups, lambda: own(uid), mount))
    same("EACCES", "another's", as_user(A, A, [], lambda: os.listdir(f"of-{B}"), mount))
    same("EACCES", "another's file", as_user(A, A, [], lambda: open(f"of-{B}/other"), mount))

    def shared():
        os.mkdir("shared")
        os.chown("shared", A, GROUP)
        os.chmod("shared", 0o770)

    same(None, "a folder of a group", as_user(A, A, [GROUP], shared, mount))
    same(None, "its use", as_user(B, B, [GROUP, 24], lambda: put("shared/file"), mount))
    same("EACCES", "its use outside the group", as_user(B, B, [], lambda: put("shared/other"), mount))
    # Whom the identity may not act for, root among them, may look at the root, and do nothing.
    for uid in (C, 0):
        for what, call in (("list", lambda: os.listdir(".")), ("make", lambda: put("file")), ("chmod", lambda: os.chmod(".", 0o777))):
            got = as_user(uid, uid, [], call, mount)
            same(True, f"{what} by {uid}, who is not of the identity ({got})", got in ("EACCES", "EPERM"))
        same(None, f"look by {uid}", as_user(uid, uid, [], lambda: os.stat("."), mount))


def gone(mount, *errors):
    for what, call in (
        ("list", lambda: os.listdir(mount)),
        ("make", lambda: put(f"{mount}/new")),
        ("mkdir", lambda: os.mkdir(f"{mount}/new")),
        ("look", lambda: os.stat(f"{mount}/what-is-not-there")),
    ):
        got = error(call)
        same(True, f"{what}: {got}", got in errors)


def main(what, *args):
    match what:
        case "root" | "out":
            {"root": root, "out": out}[what](args[0], args[1], float(args[2]))
        case "users":
            users(*args)
        case "gone":
            gone(*args)
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


main(*sys.argv[1:])
