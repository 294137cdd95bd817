"""One place is unmounted and mounted again and again, at once, by every way there is."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

at, command = sys.argv[1], sys.argv[2:]
os.makedirs(at, exist_ok=True)
ROUNDS = 30


def pando(*words, code=0, command=command):
    """What it says. Nothing that people read shows how the program has things in memory."""
    done = subprocess.run([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == code, f"{words}: exit code {done.returncode}: {done.stdout}"
    assert not re.search(r"Some\(|Pid\(|Err\(|\w \{ ", done.stdout), done.stdout
    return done.stdout


def serving():
    """The processes that serve this place."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().split(b"\0")
        except OSError:
            continue
        if b"--foreground" in line and at.encode() in line:
            found.append(int(pid))
    return found


def written(name):
    with open(f"{at}/{name}", "wb") as f:
        f.write(name.encode() * 1000)


def there(name):
    with open(f"{at}/{name}", "rb") as f:
        assert f.read() == name.encode() * 1000, name


pando("mount", at)
os.mkdir(f"{at}/again")
for i in range(ROUNDS):
    written(f"again/{i}")
    pando("umount", at)
    assert serving() == [], "umount returned before the process had ended"
    said = pando("mount", *(["--timeout", "0"] if i % 2 else []), at)
    assert "Mounted" in said, said
    there(f"again/{i}")
print(f"{ROUNDS} times: umount, mount")

# Who names another cluster, or none, waits as well.
pando("umount", at, command=[command[0], "--dir", f"{at}.nothing"])
assert serving() == [], "umount returned before the process had ended"
pando("mount", at)

tools = [[t, *more] for t, *more in (["fusermount3", "-u"], ["umount"]) if shutil.which(t)]
if os.geteuid() != 0:
    tools = [t for t in tools if t[0] != "umount"]
for tool in tools:
    for i in range(5):
        written(f"again/{tool[0]}{i}")
        subprocess.run([*tool, at], check=True)
        assert "Mounted" in pando("mount", at)
        there(f"again/{tool[0]}{i}")
    print(f"5 times: {' '.join(tool)}, mount")

assert "is mounted already" in pando("mount", at), "a second mount says so"
said = pando("mount", "--foreground", at, code=1)
assert re.search(r"is mounted already, by process \d+\n", said), said

for _ in range(5):
    pando("umount", at)
    both = [subprocess.Popen([*command, "mount", at], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted((p.communicate(timeout=60)[0] for p in both), key=lambda text: "already" in text)
    assert [p.returncode for p in both] == [0, 0], said
    assert "Mounted" in said[0] and "is mounted already" in said[1], said
    end = time.monotonic() + 10
    while len(serving()) != 1:
        assert time.monotonic() < end, serving()
        time.sleep(0.02)
print("two at once: one mounts, the other says that it is mounted")

busy = open(f"{at}/again/busy", "wb")
busy.write(b"a" * 100)
said = pando("umount", at, code=1)
assert "is in use" in said, said
busy.write(b"b" * 100)
busy.close()
with open(f"{at}/again/busy", "rb") as f:
    assert f.read() == b"a" * 100 + b"b" * 100
print("in use: refused, and nothing is lost")

# With something open, a lazy umount leaves the process there; a mount says what it waits for.
held = open(f"{at}/again/held", "wb")
held.write(b"c" * 100)
said = pando("umount", "--lazy", at)
assert "runs still" in said, said
again = subprocess.Popen([*command, "mount", at], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
time.sleep(1.5)
held.close()
out, err = again.communicate(timeout=60)
assert again.returncode == 0 and "Mounted" in out and "waiting for the process" in err, (out, err)
with open(f"{at}/again/held", "rb") as f:
    assert f.read() == b"c" * 100
print("unmounted while in use: mounting waits for the last user")

for wait in (0, 0, 0.2):
    (pid,) = serving()
    os.kill(pid, signal.SIGKILL)
    time.sleep(wait)
    assert "Mounted" in pando("mount", at)
    there("again/0")
print("after a kill: mounting takes away what is left of it")
(pid,) = serving()
os.kill(pid, signal.SIGKILL)
while serving():
    time.sleep(0.01)
pando("umount", at)
pando("mount", at)

shutil.rmtree(f"{at}/again")
pando("umount", at)
said = pando("umount", at, code=1)
assert "nothing is mounted" in said, said
