"""Blocks of files that are open, unpublished or without a name, while `gc` looks for blocks of no file."""

import json
import os
import subprocess
import sys

at, command = sys.argv[1], sys.argv[2:]
MIB = 1 << 20
blob = os.urandom(6 * MIB)


def gc(*options):
    out = subprocess.run([*command, "--json", "gc", "--grace", "0s", *options], check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)


def path(name):
    return os.path.join(at, name)


published = path("published")
with open(published, "wb") as f:
    f.write(blob)
unpublished = os.open(path("unpublished"), os.O_CREAT | os.O_RDWR)
os.write(unpublished, blob)
nameless = os.open(path("nameless"), os.O_CREAT | os.O_RDWR)
os.unlink(path("nameless"))
os.write(nameless, blob)
grown = os.open(published, os.O_RDWR | os.O_APPEND)
os.write(grown, blob)

found = gc()
assert found["files_with_blocks"] >= 3 and found["blocks"] == 0, found

assert os.pread(nameless, len(blob) + 1, 0) == blob, "a file without a name lost data"
os.close(nameless)
for fd in (unpublished, grown):
    os.close(fd)
with open(path("unpublished"), "rb") as f:
    assert f.read() == blob, "what was not published yet was lost"
with open(published, "rb") as f:
    assert f.read() == blob + blob, "what grew lost data"
assert gc("--dry-run")["blocks"] == 0
