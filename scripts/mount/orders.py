"""Two things wrong at a time: which error is reported. Every operation, as a user who is not root, against a filesystem of the
kernel's own (tmpfs). orders.py REFERENCE FOLDER [KNOWN]: KNOWN is `asked` where the kernel does not check (timeout 0)."""
import ctypes
import errno
import itertools
import os
import shutil
import sys

reference, folder = map(os.path.abspath, sys.argv[1:3])
asked = sys.argv[3:] == ["asked"]
UID = 1000
libc = ctypes.CDLL(None, use_errno=True)
NAMES = errno.errorcode
LONG = "l" * 300
# What changes more than others notice. (A file that is opened with O_CREAT is new only where none was.)
CHANGES = ("unlink", "rmdir", "mkdir", "mkfifo", "mknod", "symlink", "chmod", "chown", "lchown", "rename", "link")
TARGETS_OF_TWO = ["missing", "file", "theirs", "dir", "full"]
NOREPLACE, EXCHANGE = 1, 2

# What can be wrong with the directory a name is in, and with the name in it.
PARENTS = ["well", "nosearch", "nowrite", "noread", "sticky", "above", "nothing", "file", "loop"]
TARGETS = [
    "missing", "file", "theirs", "nowrite", "noread", "dir", "full", "theirdir", "link", "dangling", "circle", "fifo", "long",
]


def own(path, uid=UID):
    os.lchown(path, uid, uid)


def fill(d):
    for name, mode, uid in (("file", 0o666, UID), ("theirs", 0o666, 0), ("nowrite", 0o444, 0), ("noread", 0o222, 0)):
        os.close(os.open(f"{d}/{name}", os.O_CREAT | os.O_WRONLY, mode))
        own(f"{d}/{name}", uid)
    for name, uid in (("dir", UID), ("full", UID), ("theirdir", 0)):
        os.mkdir(f"{d}/{name}", 0o777)
        own(f"{d}/{name}", uid)
    os.mkdir(f"{d}/full/x")
    for name, target in (("link", "file"), ("dangling", "none"), ("circle", "circle")):
        os.symlink(target, f"{d}/{name}")
        own(f"{d}/{name}")
    os.mkfifo(f"{d}/fifo", 0o666)
    own(f"{d}/fifo")


def make(root, name):
    """A directory with all that can be in it: of another user where that is what is wrong."""
    path = f"{root}/{name}"
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    shutil.rmtree(path, ignore_errors=True)
    if name == "nothing":
        return
    if name == "file":
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
    elif name == "loop":
        os.symlink("loop", path)
    elif name == "above":
        os.makedirs(f"{path}/in", 0o777)
        fill(f"{path}/in")
        os.chmod(path, 0o666)
    else:
        os.mkdir(path, 0o777)
        fill(path)
        modes = {"well": 0o777, "nosearch": 0o666, "nowrite": 0o555, "noread": 0o333, "sticky": 0o1777}
        os.chmod(path, modes[name])


def where(parent, target, slash=""):
    name = {"missing": "none", "long": LONG}.get(target, target)
    return f"{'above/in' if parent == 'above' else parent}/{name}{slash}"


def c(name, *args):
    args = [a.encode() if isinstance(a, str) else a for a in args]
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


def opens(flags):
    return lambda p: os.close(os.open(p, flags | os.O_NONBLOCK, 0o666))


ONE = {
    "stat": os.lstat,
    "unlink": os.unlink,
    "rmdir": os.rmdir,
    "mkdir": lambda p: os.mkdir(p, 0o777),
    "mkfifo": os.mkfifo,
    "mknod device": lambda p: os.mknod(p, 0o020666, os.makedev(1, 3)),
    "symlink": lambda p: os.symlink("t", p),
    "readlink": os.readlink,
    "opendir": lambda p: os.close(os.open(p, os.O_RDONLY | os.O_DIRECTORY)),
    "truncate": lambda p: os.truncate(p, 0),
    "truncate negative": lambda p: c("truncate", p, ctypes.c_int64(-1)),
    "chmod": lambda p: os.chmod(p, 0o700),
    "chown": lambda p: os.chown(p, 0, 0),
    "lchown": lambda p: os.lchown(p, UID, 5),
    "utime now": lambda p: os.utime(p),
    "utime set": lambda p: os.utime(p, (1, 1)),
    "setxattr": lambda p: os.setxattr(p, "user.a", b"v"),
    "setxattr replace": lambda p: os.setxattr(p, "user.none", b"v", os.XATTR_REPLACE),
    "setxattr trusted": lambda p: os.setxattr(p, "trusted.a", b"v"),
    "lsetxattr": lambda p: os.setxattr(p, "user.a", b"v", follow_symlinks=False),
    "removexattr": lambda p: os.removexattr(p, "user.none"),
    "getxattr": lambda p: os.getxattr(p, "user.none"),
    "access": lambda p: c("access", p, 7),
    "chdir": os.chdir,
}
for acc in ("RDONLY", "RDWR"):
    for more in ((), ("CREAT",), ("CREAT", "EXCL"), ("TRUNC",), ("DIRECTORY",), ("NOFOLLOW",), ("CREAT", "TRUNC")):
        flags = getattr(os, f"O_{acc}")
        for m in more:
            flags |= getattr(os, f"O_{m}")
        ONE["open " + "|".join((acc, *more))] = opens(flags)


def renames(flags):
    return lambda a, b: c("renameat2", -100, a, -100, b, flags)


TWO = {
    "rename": renames(0),
    "rename noreplace": renames(NOREPLACE),
    "rename exchange": renames(EXCHANGE),
    "link": os.link,
}


def is_known(op, want, got):
    """Where the kernel asks no permission before each call it looks at the kinds and the names first (docs/posix.md)."""
    if want not in (errno.EACCES, errno.EPERM):
        return False
    if got == errno.ENAMETOOLONG:
        return True
    if op in ("mknod device", "link"):
        return got == errno.EPERM
    if "CREAT" in op:
        return got == errno.EISDIR
    if op.startswith("rename") and got == errno.ENOENT:
        return True
    return op.startswith(("unlink", "rmdir", "rename")) and got in (errno.EISDIR, errno.ENOTDIR)


def cases():
    """Of each operation all places, and of those with two names all pairs of places."""
    for op in ONE:
        for p, t in itertools.product(PARENTS, TARGETS):
            yield op, (where(p, t),)
            if t in ("missing", "file", "dir", "link"):
                yield op, (where(p, t, "/"),)
    places = list(itertools.product(["well", "nosearch", "nowrite"], TARGETS_OF_TWO))
    for op in TWO:
        for (p, t), (q, u) in itertools.product(places, repeat=2):
            yield op, (where(p, t), where(q, u))
        for p, t, u in itertools.product(["well", "nowrite"], TARGETS_OF_TWO, TARGETS_OF_TWO):
            yield op, (where(p, t, "/"), where("sticky", u))
            yield op, (where("sticky", t), where(p, u, "/"))
        # Into its own subtree.
        for p in ("well", "nowrite", "sticky"):
            yield op, (f"{p}/full", f"{p}/full/x/y")
            yield op, (f"{p}/full/x", f"{p}/full")
            yield op, (f"{p}/dir", f"{p}/dir/.")


def results(root, todo):
    """The error of each, 0 if there is none. What works is undone."""
    os.umask(0)
    shutil.rmtree(root, ignore_errors=True)
    os.mkdir(root)
    os.chmod(root, 0o777)
    for name in PARENTS:
        make(root, name)
    # From there, because users may not come that way.
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(here)
    found = {}
    for op, paths in todo:
        code = 0
        os.setresgid(UID, UID, 0)
        os.setresuid(UID, UID, 0)
        try:
            (ONE.get(op) or TWO[op])(*paths)
        except OSError as e:
            code = e.errno
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        found[op, paths] = code
        if op == "chdir":
            os.fchdir(here)
        is_new = "CREAT" in op and paths[0].endswith(("/none", "/dangling"))
        if code == 0 and (is_new or op.startswith(CHANGES)):
            for name in {p.split("/")[0] for p in paths}:
                make(root, name)
    os.chdir("/")
    os.close(here)
    shutil.rmtree(root, ignore_errors=True)
    return found


os.setgroups([])
todo = list(cases())
expected = results(reference, todo)
got = results(folder, todo)
word = lambda code: NAMES.get(code, "worked") if code else "worked"
known = 0
wrong = []
for case, want in expected.items():
    if got[case] != want:
        if asked and is_known(case[0], want, got[case]):
            known += 1
            continue
        wrong.append((case[0], word(want), word(got[case]), " ".join(case[1])))
for op, want, have, paths in wrong[:60]:
    print(f"{op} {paths}: {have}, and on Linux {want}".replace(LONG, "LONG"))
print(f"{len(todo)} cases: {len(wrong)} differ, {known} as documented")
sys.exit(1 if wrong else 0)
