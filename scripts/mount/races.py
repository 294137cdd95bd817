"""Names that one mount removes and replaces while another walks to them. races.py A B SECONDS all | handles | by_handle | races"""
import ctypes
import errno
import multiprocessing
import os
import sys
import time
import traceback

a, b, seconds, what = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
CREATE = os.O_CREAT | os.O_WRONLY


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def swap(path, data, i):
    write(f"{path}.{i % 2}", data)
    os.rename(f"{path}.{i % 2}", path)


def allowed(call, *errors):
    """What the call returns; None for an error that a local filesystem may return here, too."""
    try:
        return call()
    except OSError as e:
        if e.errno not in errors:
            raise
        return None


# Each is called again and again, with the number of the call, on one of the two mounts.


def unlinks(top, i):
    allowed(lambda: os.unlink(f"{top}/f"), errno.ENOENT)


def creates(top, i):
    os.close(os.open(f"{top}/f", CREATE))


def truncates(top, i):
    fd = os.open(f"{top}/f", CREATE | os.O_TRUNC)
    os.write(fd, b"bytes")
    os.close(fd)


def renames_over(top, i):
    swap(f"{top}/f", b"renamed", i)


def renames_away(top, i):
    allowed(lambda: os.rename(f"{top}/f", f"{top}/g"), errno.ENOENT)


def makes_dirs(top, i):
    # As `mkdir -p` has it: what is there may be gone at the next look, as anywhere.
    allowed(lambda: os.mkdir(f"{top}/p"), errno.EEXIST)
    allowed(lambda: os.mkdir(f"{top}/p/q"), errno.EEXIST, errno.ENOENT)


def removes_dirs(top, i):
    allowed(lambda: os.rmdir(f"{top}/p/q"), errno.ENOENT)
    allowed(lambda: os.rmdir(f"{top}/p"), errno.ENOENT, errno.ENOTEMPTY)


def counts(top, i):
    write(f"{top}/new", b"%d" % i)
    os.setxattr(f"{top}/new", "user.count", b"%d" % i)
    os.rename(f"{top}/new", f"{top}/f")
    os.symlink(f"{i:01000}", f"{top}/new")
    os.rename(f"{top}/new", f"{top}/s")
    os.mkdir(f"{top}/new")
    os.setxattr(f"{top}/new", "user.count", b"%d" % i)
    os.rename(f"{top}/new", f"{top}/d")


seen = {}


def rises(kind, number):
    assert number >= seen.get(kind, 0), f"{kind}: {number} after {seen[kind]}"
    seen[kind] = number


def reads(top, i):
    with open(f"{top}/f", "rb") as f:
        rises("file", int(f.read()))
    assert os.stat(f"{top}/f").st_size > 0
    rises("xattr", int(os.getxattr(f"{top}/f", "user.count")))
    rises("target", int(os.readlink(f"{top}/s")))
    os.lstat(f"{top}/s")
    os.stat(f"{top}/d")
    # A directory may be gone once it is found, as anywhere.
    value = allowed(lambda: os.getxattr(f"{top}/d", "user.count"), errno.ENODATA)
    if value is not None:
        rises("directory", int(value))
    assert os.listdir(f"{top}/d") == []
    os.close(os.open(f"{top}/d", os.O_RDONLY | os.O_DIRECTORY))


def changes(top, i):
    os.chmod(f"{top}/f", 0o600 + i % 64)
    os.utime(f"{top}/f")
    os.access(f"{top}/f", os.R_OK)
    # A file whose last name has gone meanwhile gets no other, as anywhere.
    linked = f"{top}/linked-{os.getpid()}"
    allowed(lambda: os.link(f"{top}/f", linked), errno.ENOENT)
    allowed(lambda: os.unlink(linked), errno.ENOENT)


def user(run, top, mount, end, failed):
    i, problems = 0, {}
    while time.monotonic() < end:
        i += 1
        try:
            run(f"{mount}/{top}", i)
        except (OSError, AssertionError) as e:
            line = traceback.extract_tb(e.__traceback__)[-1].line
            why = f"{run.__name__}: {e!r:.80}: {line}"
            problems[why] = problems.get(why, 0) + 1
    for why, times in problems.items():
        print(f"    {times} of {i}: {why}")
    if problems:
        failed.value = 1


def race(name, *users, before=None):
    """Each user is a function and the mount it runs on."""
    top = f"race-{name}"
    os.mkdir(f"{a}/{top}")
    if before:
        before(f"{a}/{top}", 0)
    # The other mount may believe for a second that there is no such name.
    while not os.path.isdir(f"{b}/{top}"):
        time.sleep(0.05)
    end, failed = time.monotonic() + seconds, multiprocessing.Value("i", 0)
    runs = [multiprocessing.Process(target=user, args=(f, top, at, end, failed)) for f, at in users]
    for p in runs:
        p.start()
    for p in runs:
        p.join()
        assert p.exitcode == 0, name
    if failed.value:
        print(f"race {name}: failed")
    return failed.value


def races():
    bad = race("create-unlink", (creates, a), (unlinks, b))
    bad += race("truncate-unlink", (truncates, a), (truncates, b), (unlinks, b))
    bad += race("create-rename", (creates, a), (truncates, a), (renames_over, b), before=renames_over)
    bad += race("create-away", (truncates, a), (renames_away, b))
    bad += race("mkdir-rmdir", (makes_dirs, a), (removes_dirs, b))
    bad += race("readers", (counts, a), (reads, b), (reads, b), before=counts)
    bad += race("changes", (renames_over, a), (changes, b), before=renames_over)
    assert not bad, f"{bad} races failed"


def error_of(call):
    try:
        call()
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def removed_handle(top, remover, how):
    """A directory that is open on `top` is taken away by `remover`: it is as on a local filesystem."""
    name = f"dir-{how}-{time.monotonic_ns()}"
    os.mkdir(f"{remover}/{name}", 0o755)
    while not os.path.isdir(f"{top}/{name}"):
        time.sleep(0.05)
    fd = os.open(f"{top}/{name}", os.O_RDONLY | os.O_DIRECTORY)
    before = os.fstat(fd)
    if how == "rmdir":
        os.rmdir(f"{remover}/{name}")
    else:
        os.mkdir(f"{remover}/{name}-new")
        write(f"{remover}/{name}-new/there", b"")
        os.rename(f"{remover}/{name}-new", f"{remover}/{name}")
    for pause in 0, 1.5:
        # Before and after what the kernel believes has run out.
        time.sleep(pause)
        now = os.fstat(fd)
        if pause or top == remover:
            assert now.st_nlink == 0, now
        assert now.st_ino == before.st_ino, (before, now)
    assert error_of(lambda: os.fchmod(fd, 0o711)) is None
    assert error_of(lambda: os.fchown(fd, os.getuid(), os.getgid())) is None
    assert error_of(lambda: os.utime(fd, (5, 7))) is None
    now = os.fstat(fd)
    assert (now.st_mode & 0o7777, now.st_mtime, now.st_nlink) == (0o711, 7, 0), now
    made = {
        "open": lambda: os.open("x", CREATE, dir_fd=fd),
        "mkdir": lambda: os.mkdir("x", dir_fd=fd),
        "mknod": lambda: os.mknod("x", dir_fd=fd),
        "symlink": lambda: os.symlink("x", "y", dir_fd=fd),
        "stat": lambda: os.stat("x", dir_fd=fd),
        "lookup": lambda: os.open("there", os.O_RDONLY, dir_fd=fd),
        "unlink": lambda: os.unlink("x", dir_fd=fd),
        "rmdir": lambda: os.rmdir("x", dir_fd=fd),
        "rename": lambda: os.rename("x", "y", src_dir_fd=fd, dst_dir_fd=fd),
    }
    errors = {call: error_of(f) for call, f in made.items()}
    assert set(errors.values()) == {"ENOENT"}, (name, errors)
    write(f"{top}/{name}.file", b"")
    into = {
        "link": lambda: os.link(f"{top}/{name}.file", "x", dst_dir_fd=fd),
        "rename": lambda: os.rename(f"{top}/{name}.file", "x", dst_dir_fd=fd),
    }
    errors = {call: error_of(f) for call, f in into.items()}
    assert set(errors.values()) == {"ENOENT"}, (name, errors)
    assert allowed(lambda: os.listdir(fd), errno.ENOENT) in ([], None)
    os.close(fd)
    if how == "replaced":
        assert os.listdir(f"{top}/{name}") == ["there"], os.listdir(f"{top}/{name}")


def handles():
    for how in "rmdir", "replaced":
        for top, remover in (a, a), (a, b):
            removed_handle(top, remover, how)


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_char * 128)]


def by_handle():
    libc = ctypes.CDLL(None, use_errno=True)
    write(f"{a}/by-handle", b"here")
    handle, mount = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, f"{a}/by-handle".encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    top = os.open(a, os.O_RDONLY)

    def opened():
        fd = libc.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "open_by_handle_at")
        data = os.read(fd, 10)
        os.close(fd)
        return data

    assert opened() == b"here"
    while not os.path.exists(f"{b}/by-handle"):
        time.sleep(0.05)
    os.unlink(f"{b}/by-handle")
    assert error_of(opened) == "ESTALE", error_of(opened)
    os.close(top)


parts = {"handles": handles, "by_handle": by_handle, "races": races}
if os.geteuid() != 0:
    # Only root may open by handle.
    del parts["by_handle"]
failed = []
for part, run in parts.items():
    if what in (part, "all"):
        try:
            run()
        except (OSError, AssertionError):
            traceback.print_exc()
            failed.append(part)
sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
