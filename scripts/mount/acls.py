"""What access control lists must do, on the mount in argv[1], which argv[2] shows too. As root, with other users."""

import errno
import os
import stat
import struct
import sys
import time

from users import as_user

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS = {"u": (1, 2), "g": (4, 8), "m": (0x10, 0), "o": (0x20, 0)}


def acl(text):
    """The kernel's bytes of u::7,u:1000:6,g::5,m::7,o::0, in the kernel's order."""
    entries = []
    for entry in text.split(","):
        kind, who, may = entry.split(":")
        tag = TAGS[kind][bool(who)]
        entries.append((tag, int(may), int(who) if who else 0xFFFFFFFF))
    entries.sort(key=lambda e: (e[0], e[2]))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


def says(wanted, call, *args, **options):
    try:
        got = call(*args, **options)
    except OSError as e:
        got = errno.errorcode[e.errno]
    assert got == wanted, f"{call.__name__}{args[:2]}: {str(got)[:80]}, not {str(wanted)[:80]}"


def mode(path):
    return oct(stat.S_IMODE(os.stat(path).st_mode))


def make(path, text=None, bits=None):
    with open(path, "w") as f:
        f.write("text")
    if bits is not None:
        os.chmod(path, bits)
    if text:
        os.setxattr(path, ACCESS, acl(text))


def reads(path):
    return lambda: open(path).read()


def writes(path):
    return lambda: open(path, "r+").close()


def rules():
    make("file", bits=0o640)
    says("ENODATA", os.getxattr, "file", ACCESS)
    text = "u::6,u:1000:6,g::0,m::4,o::0"
    os.setxattr("file", ACCESS, acl(text))
    says(acl(text), os.getxattr, "file", ACCESS)
    says("0o640", mode, "file")
    assert ACCESS in os.listxattr("file")
    # chmod changes the mask; the group's entry stays.
    os.chmod("file", 0o664)
    says(acl("u::6,u:1000:6,g::0,m::6,o::4"), os.getxattr, "file", ACCESS)
    # A list that says what bits can say is none.
    os.setxattr("file", ACCESS, acl("u::7,g::5,o::1"))
    says("ENODATA", os.getxattr, "file", ACCESS)
    says("0o751", mode, "file")
    assert ACCESS not in os.listxattr("file")
    os.setxattr("file", ACCESS, acl(text))
    os.removexattr("file", ACCESS)
    says("0o640", mode, "file")
    says("ENODATA", os.getxattr, "file", ACCESS)
    # Malformed: no version, out of order, no mask where one is needed, permissions that are none.
    says("EINVAL", os.setxattr, "file", ACCESS, b"\2\0")
    says(errno.errorcode[errno.EOPNOTSUPP], os.setxattr, "file", ACCESS, b"\1\0\0\0" + acl(text)[4:])
    says("EINVAL", os.setxattr, "file", ACCESS, acl(text)[:4] + acl(text)[12:])
    says("EINVAL", os.setxattr, "file", ACCESS, acl("u::7,u:5:7,g::5,o::1"))
    says("EACCES", os.setxattr, "file", DEFAULT, acl("u::7,g::5,o::1"))
    longest = "u::7,g::7,m::7,o::7," + ",".join(f"u:{n}:7" for n in range(100, 128))
    os.setxattr("file", ACCESS, acl(longest))
    says(acl(longest), os.getxattr, "file", ACCESS)
    says("E2BIG", os.setxattr, "file", ACCESS, acl(longest + ",g:5:7"))
    os.symlink("file", "link")
    says(errno.errorcode[errno.EOPNOTSUPP], os.setxattr, "link", ACCESS, acl(text), follow_symlinks=False)


def inheritance():
    default = "u::7,u:1000:7,g::5,m::7,o::5"
    os.mkdir("dir", 0o755)
    os.setxattr("dir", DEFAULT, acl(default))
    says(acl(default), os.getxattr, "dir", DEFAULT)
    assert os.listxattr("dir") == [DEFAULT], os.listxattr("dir")
    before = os.umask(0o077)
    # The umask does not count; what the creator does not ask for nobody gets.
    os.close(os.open("dir/file", os.O_CREAT | os.O_WRONLY, 0o664))
    says("0o664", mode, "dir/file")
    says(acl("u::6,u:1000:7,g::5,m::6,o::4"), os.getxattr, "dir/file", ACCESS)
    os.mkdir("dir/sub", 0o750)
    says("0o750", mode, "dir/sub")
    says(acl("u::7,u:1000:7,g::5,m::5,o::0"), os.getxattr, "dir/sub", ACCESS)
    says(acl(default), os.getxattr, "dir/sub", DEFAULT)
    os.mkfifo("dir/sub/fifo", 0o600)
    says(acl("u::6,u:1000:7,g::5,m::0,o::0"), os.getxattr, "dir/sub/fifo", ACCESS)
    os.symlink("file", "dir/link")
    os.removexattr("dir", DEFAULT)
    os.close(os.open("dir/plain", os.O_CREAT | os.O_WRONLY, 0o666))
    says("0o600", mode, "dir/plain")
    says("ENODATA", os.getxattr, "dir/plain", ACCESS)
    os.umask(before)


def keeps():
    """Lists stay with what they are of, whatever it is called."""
    text = "u::6,u:1000:6,g::4,m::6,o::0"
    make("moving", text)
    os.rename("moving", "moved")
    says(acl(text), os.getxattr, "moved", ACCESS)
    os.link("moved", "other")
    for name in ("moved", "other"):
        says(acl(text), os.getxattr, name, ACCESS)
    os.chmod("other", 0o600)
    says(acl("u::6,u:1000:6,g::4,m::0,o::0"), os.getxattr, "moved", ACCESS)
    os.unlink("moved")
    says(acl("u::6,u:1000:6,g::4,m::0,o::0"), os.getxattr, "other", ACCESS)
    os.mkdir("place")
    os.setxattr("place", ACCESS, acl("u::7,u:1000:5,g::0,m::5,o::0"))
    os.rename("place", "dir/place")
    says(acl("u::7,u:1000:5,g::0,m::5,o::0"), os.getxattr, "dir/place", ACCESS)
    # What gets the name of something that had a list has none.
    os.unlink("other")
    make("other")
    says("ENODATA", os.getxattr, "other", ACCESS)


def users(second):
    """Named users and groups, the mask and the others, on both mounts."""
    os.chmod(".", 0o755)
    make("named", "u::6,u:1000:6,g::0,m::6,o::0", 0o600)
    make("masked", "u::6,u:1000:6,g::0,m::4,o::0", 0o600)
    make("shut", "u::6,u:1000:0,g::7,m::7,o::7", 0o600)
    make("groups", "u::6,g::4,g:3000:2,m::7,o::0", 0o600)
    for at in (".", second):
        expected = [
            ("named", 1000, [], None, None),
            ("named", 1001, [], "EACCES", "EACCES"),
            ("masked", 1000, [], None, "EACCES"),
            ("shut", 1000, [], "EACCES", "EACCES"),
            ("shut", 1001, [], None, None),
            ("groups", 1001, [3000], "EACCES", "EACCES"),
            ("groups", 1001, [0], None, "EACCES"),
        ]
        for name, uid, groups, may_read, may_write in expected:
            got = as_user(uid, uid, groups, reads(name), at)
            assert got == may_read, f"{uid} {groups} reads {at}/{name}: {got}, not {may_read}"
            got = as_user(uid, uid, groups, writes(name), at)
            assert got == may_write, f"{uid} {groups} writes {at}/{name}: {got}, not {may_write}"
    # Only write: some group allows it.
    got = as_user(1001, 1001, [3000], lambda: os.close(os.open("groups", os.O_WRONLY)))
    assert got is None, got
    # A directory: who is named may search and change it.
    os.mkdir("room", 0o700)
    os.setxattr("room", ACCESS, acl("u::7,u:1000:7,g::0,m::7,o::0"))
    for at in (".", second):
        made = f"room/by-{len(at)}"
        assert as_user(1000, 1000, [], lambda: open(made, "w").close(), at) is None, made
        assert as_user(1001, 1001, [], lambda: os.listdir("room"), at) == "EACCES"
    # Lists are the owner's to set.
    got = as_user(1000, 1000, [], lambda: os.setxattr("named", ACCESS, acl("u::7,g::7,o::7")))
    assert got == "EPERM", got


def soon(what, wanted):
    """A mount may believe what it was told for a second."""
    until = time.monotonic() + 30
    while (got := what()) != wanted:
        assert time.monotonic() < until, f"still {got}, not {wanted}"
        time.sleep(0.1)


def other_mount(second):
    """What is changed on the one is seen on the other."""
    there = os.path.join(second, "named")
    says(acl("u::6,u:1000:6,g::0,m::6,o::0"), os.getxattr, there, ACCESS)
    os.setxattr("named", ACCESS, acl("u::6,u:1001:4,g::0,m::4,o::0"))
    soon(lambda: os.getxattr(there, ACCESS), acl("u::6,u:1001:4,g::0,m::4,o::0"))
    soon(lambda: as_user(1000, 1000, [], reads("named"), second), "EACCES")
    soon(lambda: as_user(1001, 1001, [], reads("named"), second), None)
    lists = lambda: os.listdir("room")
    assert as_user(1000, 1000, [], lists, second) is None
    os.setxattr("room", ACCESS, acl("u::7,u:1001:5,g::0,m::5,o::0"))
    soon(lambda: as_user(1000, 1000, [], lists, second), "EACCES")
    soon(lambda: as_user(1001, 1001, [], lists, second), None)
    # A default list that is set here is inherited there at once: the server refuses what the other mount still believes.
    os.setxattr("room", DEFAULT, acl("u::7,u:1000:7,g::0,m::7,o::0"))
    with open(os.path.join(second, "room/inherits"), "w"):
        pass
    soon(lambda: ACCESS in os.listxattr(os.path.join(second, "room/inherits")), True)


os.chdir(sys.argv[1])
os.umask(0o022)
rules()
inheritance()
keeps()
if os.getuid() == 0:
    users(sys.argv[2])
    other_mount(sys.argv[2])
