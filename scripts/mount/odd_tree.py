"""Adds to a tree what source trees have seldom: sizes around the limits, links of all kinds, odd modes and times."""
import os
import random
import sys

root, wanted = sys.argv[1], int(sys.argv[2])
odd = os.path.join(root, "odd")
rand = random.Random(1)
KIB, MIB = 1 << 10, 1 << 20


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


# If there were too few crates, the rest is made up.
have = sum(len(files) for _, _, files in os.walk(root))
for i in range(max(0, wanted - have)):
    write(f"{root}/made/{i % 97}/{i % 7}/file{i}.c", b"int x%d;\n" % i * rand.randrange(200))

for limit in (4 * KIB, 64 * KIB, 4 * MIB):
    for size in (limit - 1, limit, limit + 1):
        write(f"{odd}/size/{size}", rand.randbytes(size))
write(f"{odd}/size/0", b"")
write(f"{odd}/size/9m", rand.randbytes(9 * MIB + 5))
with open(f"{odd}/size/hole", "wb") as f:
    f.seek(10 * MIB)
    f.write(b"end")

for mode in (0o400, 0o444, 0o600, 0o755, 0o777, 0o2755, 0o4711):
    write(f"{odd}/mode/{mode:o}", b"mode")
    os.chmod(f"{odd}/mode/{mode:o}", mode)
for i, ns in enumerate((0, 1, 999_999_999, 10**18 + 1, 1_600_000_000_123_456_789, 2**33 * 10**9)):
    write(f"{odd}/time/{i}", b"time")
    os.utime(f"{odd}/time/{i}", ns=(ns, ns))

for i, name in enumerate((b"sp ace", b"new\nline", b"\xff\xfenot utf-8", "ümläut".encode(), b"-dash", b"x" * 255)):
    write(os.path.join(odd.encode(), b"name", name), b"%d" % i)
deep = odd + "/deep" + "/d" * 40
write(deep + "/bottom", b"bottom")

os.makedirs(f"{odd}/link")
links = {"relative": "../size/4096", "dangling": "no/such/file", "absolute": "/etc/passwd", "dir": "../deep",
         "self": "self", "long": "/".join(["long"] * 200), "up": ".."}
for name, target in links.items():
    os.symlink(target, f"{odd}/link/{name}")
crates = sorted(os.listdir(f"{root}/crates"))
for name in crates[:200]:
    os.symlink(f"../../crates/{name}", f"{odd}/link/crate-{name}")
os.utime(f"{odd}/link/relative", ns=(10**18, 10**18 + 7), follow_symlinks=False)
os.chmod(f"{odd}/empty", 0o1777)
os.utime(f"{odd}/empty", (0, 0))
