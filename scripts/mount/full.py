"""What a server without space does (`full`), and with space again (`space`): folders on it and on another."""
import errno
import os
import sys

phase, here, there, data = sys.argv[1:]
data = open(data, "rb").read()


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, what=data):
    with open(path, "wb") as f:
        f.write(what)


def refused(f, *args):
    try:
        f(*args)
    except OSError as e:
        assert e.errno == errno.ENOSPC, f"{f.__name__}{args}: {e}"
    else:
        raise AssertionError(f"{f.__name__}{args} worked on a full server")


if phase == "full":
    refused(write, here + "/new")
    refused(os.mkdir, here + "/newdir")
    refused(os.symlink, "target", here + "/link")
    refused(write, here + "/keep2")
    assert read(here + "/keep") == data and os.stat(here + "/keep").st_size == len(data)
    assert sorted(os.listdir(here)) == ["cut", "empty", "gone", "keep"], os.listdir(here)
    os.truncate(here + "/cut", 100)
    assert read(here + "/cut") == data[:100]
    os.unlink(here + "/gone")
    os.rmdir(here + "/empty")
    assert sorted(os.listdir(here)) == ["cut", "keep"]
    # Other servers have space.
    write(there + "/more")
    assert read(there + "/more") == data
else:
    assert read(here + "/keep") == data and read(here + "/cut") == data[:100]
    assert sorted(os.listdir(here)) == ["cut", "keep"]
    write(here + "/new")
    write(here + "/keep", data * 2)
    os.mkdir(here + "/newdir")
    os.rename(there + "/more", here + "/newdir/more")
    assert read(here + "/new") == data and read(here + "/keep") == data * 2 and read(here + "/newdir/more") == data
