"""Names and paths at their limits, and the errors beyond."""
import errno
import os
import sys

root = os.fsencode(sys.argv[1])
os.chdir(root)


def fails(want, f, *args, **kw):
    try:
        f(*args, **kw)
    except OSError as e:
        assert e.errno == want, f"{f.__name__}{args}: {e}, wanted {errno.errorcode[want]}"
    else:
        raise AssertionError(f"{f.__name__}{args} worked, wanted {errno.errorcode[want]}")


def write(path, data=b"x"):
    with open(path, "wb") as f:
        f.write(data)


long = b"n" * 255
write(long)
assert os.listdir(b".") == [long] and open(long, "rb").read() == b"x"
os.rename(long, b"m" * 255)
for f in (os.stat, os.unlink, os.rmdir, os.mkdir, os.readlink, write):
    fails(errno.ENAMETOOLONG, f, b"n" * 256)
fails(errno.ENAMETOOLONG, os.rename, b"m" * 255, b"n" * 256)
fails(errno.ENAMETOOLONG, os.symlink, b"t", b"n" * 256)
os.unlink(b"m" * 255)

# Every byte but / and 0.
names = {bytes([b]) for b in range(1, 256)} - {b"/", b"."}
names |= {b"\xff\xfe\x80", b"new\nline", " ".encode() * 3, "漢字".encode(), b"...", b"..x"}
for n in names:
    write(n, n)
assert set(os.listdir(b".")) == names
for n in names:
    assert open(n, "rb").read() == n
    os.unlink(n)
assert os.listdir(b".") == []

write(b"file")
os.mkdir(b"dir")
for f in (os.stat, os.unlink, os.rmdir, os.mkdir, os.readlink, os.listdir, write):
    fails(errno.ENOTDIR, f, b"file/below")
fails(errno.ENOTDIR, os.rename, b"file/a", b"b")
fails(errno.ENOTDIR, os.rename, b"dir", b"file")
fails(errno.EISDIR, os.rename, b"file", b"dir")
fails(errno.ENOTDIR, os.rmdir, b"file")
fails(errno.EISDIR, os.unlink, b"dir")
fails(errno.EISDIR, write, b"dir")
fails(errno.ENOENT, os.stat, b"none/below")
fails(errno.EEXIST, os.mkdir, b"file")
fails(errno.EINVAL, os.rename, b"dir", b"dir/below")
fails(errno.EINVAL, os.readlink, b"file")
os.symlink(b"loop", b"loop")
fails(errno.ELOOP, os.stat, b"loop")
write(b"dir/x")
fails(errno.ENOTEMPTY, os.rmdir, b"dir")

# A deep path, and a directory moved with all below it.
deep = b"/".join([b"level%d" % i for i in range(40)])
os.makedirs(deep)
write(deep + b"/bottom", b"here")
os.rename(b"level0", b"dir/moved")
assert open(b"dir/moved" + deep[len(b"level0"):] + b"/bottom", "rb").read() == b"here"
fails(errno.EINVAL, os.rename, b"dir", b"dir/moved/level1/level2/dir")
# A path as long as the kernel takes.
at = os.open(b".", os.O_RDONLY)
for _ in range(20):
    os.mkdir(long, dir_fd=at)
    at, old = os.open(long, os.O_RDONLY, dir_fd=at), at
    os.close(old)
os.close(os.open(b"end", os.O_CREAT | os.O_WRONLY, dir_fd=at))
assert os.listdir(at) == ["end"]

# Long and longest targets.
os.symlink(b"t" * 4095, b"longest")
assert os.readlink(b"longest") == b"t" * 4095
fails(errno.ENAMETOOLONG, os.symlink, b"t" * 4096, b"longer")

st = os.statvfs(b".")
assert st.f_namemax == 255 and st.f_bsize > 0 and st.f_blocks >= st.f_bfree > 0

# What is removed or renamed while it is listed is not there under its old name, whatever was read ahead.
os.mkdir(b"listed")
old = [b"listed/%03d-" % i + b"x" * 100 for i in range(600)]
new = [n.replace(b"listed/", b"listed/new-") for n in old]
for n in old:
    write(n)
with os.scandir(b"listed") as entries:
    next(entries).stat()
    for i in range(0, 600, 3):
        os.unlink(old[i])
        os.rename(old[i + 1], new[i + 1])
    seen = [e.name for e in entries]
assert len(seen) == len(set(seen))
for i in range(0, 600, 3):
    for gone in (old[i], old[i + 1]):
        fails(errno.ENOENT, os.stat, gone)
        os.close(os.open(gone, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    for there in (new[i + 1], old[i + 2]):
        os.close(os.open(there, os.O_RDWR))
