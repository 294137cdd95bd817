"""What setxattr(2), getxattr(2), listxattr(2) and removexattr(2) must say, on the mount in argv[1]."""

import errno
import os
import sys


def says(wanted, call, *args, **options):
    try:
        got = call(*args, **options)
    except OSError as e:
        got = errno.errorcode[e.errno]
    assert got == wanted, f"{call.__name__}{args[:2]}: {str(got)[:80]}, not {str(wanted)[:80]}"


def rules():
    open("file", "w").close()
    says(None, os.setxattr, "file", "user.a", b"1", os.XATTR_CREATE)
    says("EEXIST", os.setxattr, "file", "user.a", b"2", os.XATTR_CREATE)
    says("ENODATA", os.setxattr, "file", "user.b", b"2", os.XATTR_REPLACE)
    says(None, os.setxattr, "file", "user.a", b"2", os.XATTR_REPLACE)
    says(b"2", os.getxattr, "file", "user.a")
    says("ENODATA", os.getxattr, "file", "user.b")
    says("ENODATA", os.removexattr, "file", "user.b")
    says(None, os.setxattr, "file", "user.empty", b"")
    says(b"", os.getxattr, "file", "user.empty")
    says(errno.errorcode[errno.EOPNOTSUPP], os.setxattr, "file", "nowhere.a", b"1")
    says("EINVAL", os.setxattr, "file", "user.", b"1")
    says("ERANGE", os.setxattr, "file", "user." + "n" * 251, b"1")
    says(None, os.setxattr, "file", "user." + "n" * 250, b"1")
    says("E2BIG", os.setxattr, "file", "user.large", b"x" * 65537)
    says(None, os.setxattr, "file", "user.large", b"x" * 65536)
    says("ENOSPC", os.setxattr, "file", "user.more", b"x" * 65536)
    says(b"x" * 65536, os.getxattr, "file", "user.large")
    says(None, os.removexattr, "file", "user.large")
    names = sorted(["user.a", "user.empty", "user." + "n" * 250])
    says(names, lambda: sorted(n for n in os.listxattr("file") if n.startswith("user.")))


def places():
    os.mkdir("dir")
    os.setxattr("dir", "user.a", b"dir")
    os.rename("dir", "moved")
    says(b"dir", os.getxattr, "moved", "user.a")
    os.rmdir("moved")
    os.mkdir("moved")
    says("ENODATA", os.getxattr, "moved", "user.a")
    open("replaced", "w").close()
    os.setxattr("replaced", "user.a", b"old")
    open("new", "w").close()
    os.rename("new", "replaced")
    says("ENODATA", os.getxattr, "replaced", "user.a")
    os.symlink("file", "link")
    says("EPERM", os.setxattr, "link", "user.a", b"1", follow_symlinks=False)
    os.mkfifo("fifo")
    says("EPERM", os.setxattr, "fifo", "user.a", b"1")


def superuser():
    capability = bytes([0, 0, 0, 2]) + bytes(16)
    fd = os.open("program", os.O_CREAT | os.O_RDWR, 0o755)
    os.write(fd, b"1")
    # What was written before it is set does not take it.
    os.setxattr(fd, "security.capability", capability)
    os.close(fd)
    says(capability, os.getxattr, "program", "security.capability")
    with open("program", "r+b") as program:
        program.write(b"2")
    says("ENODATA", os.getxattr, "program", "security.capability")
    for change in (lambda: os.truncate("program", 0), lambda: os.chown("program", 1, 1)):
        os.setxattr("program", "security.capability", capability)
        change()
        says("ENODATA", os.getxattr, "program", "security.capability")
    os.chown("file", 0, 0)
    os.chmod("file", 0o644)
    os.setxattr("file", "trusted.a", b"1")
    os.setxattr("file", "security.a", b"1")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            says("ENODATA", os.getxattr, "file", "trusted.a")
            says("EPERM", os.setxattr, "file", "trusted.b", b"1")
            says("EPERM", os.setxattr, "file", "security.b", b"1")
            says("EACCES", os.setxattr, "file", "user.b", b"1")
            says(b"1", os.getxattr, "file", "security.a")
            says(b"2", os.getxattr, "file", "user.a")
            assert "trusted.a" not in os.listxattr("file")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, "as another user"


os.chdir(sys.argv[1])
os.chmod(".", 0o755)
rules()
places()
if os.getuid() == 0:
    superuser()
