"""interrupts.py FOLDER PID...: stops the servers and sees to it that signals end who waits for them."""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time

folder, servers = sys.argv[1], [int(p) for p in sys.argv[2:]]
libc = ctypes.CDLL(None, use_errno=True)
# More than a mount has threads: what waits for a thread must end too.
MANY = 48


def to_servers(number):
    for pid in servers:
        os.kill(pid, number)


def default_signals():
    # A shell's background jobs ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*command):
    null = subprocess.DEVNULL
    return subprocess.Popen(command, preexec_fn=default_signals, stdin=null, stdout=null, stderr=null)


def prepare(at):
    os.makedirs(f"{at}/sub/old")
    with open(f"{at}/file", "wb") as f:
        f.write(b"x" * 300_000)
    with open(f"{at}/gone", "wb") as f:
        f.write(b"y")
    for n in range(MANY):
        os.mkdir(f"{at}/{n}")


def programs(at):
    yield "stat", start("stat", f"{at}/0/none")
    yield "cat", start("cat", f"{at}/file")
    yield "mkdir", start("mkdir", f"{at}/1/new")
    yield "cp", start("cp", "/proc/self/status", f"{at}/2/copy")
    yield "rm", start("rm", f"{at}/gone")
    yield "rmdir", start("rmdir", f"{at}/sub/old")
    yield "mv", start("mv", f"{at}/3", f"{at}/4/moved")
    yield "ls", start("ls", "-l", f"{at}/5")
    yield "chmod", start("chmod", "700", f"{at}/6")
    for n in range(MANY):
        yield f"stat {n}", start("stat", f"{at}/{n}/none")


def ended(started, number):
    """All have waited, and end within seconds by this signal."""
    time.sleep(2)
    for name, process in started:
        if process.poll() is not None:
            sys.exit(f"{name} did not wait: {process.returncode}")
    for _, process in started:
        process.send_signal(number)
    until = time.monotonic() + 10
    for name, process in started:
        try:
            code = process.wait(max(0.01, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            sys.exit(f"{name} was not ended by signal {number}")
        if code != -number:
            sys.exit(f"{name} ended with {code}")
    print(f"signal {number} ended {len(started)} programs within {10 - (until - time.monotonic()):.1f} s")


def works(at):
    """The filesystem is there again, with or without what was interrupted."""
    for _ in range(300):
        try:
            with open(f"{at}/after", "w") as f:
                f.write("after")
            break
        except OSError:
            time.sleep(0.1)
    with open(f"{at}/after") as f:
        assert f.read() == "after"
    os.remove(f"{at}/after")
    for n in range(MANY):
        if n not in (3, 4):
            os.listdir(f"{at}/{n}")
    subprocess.run(["cp", "-r", f"{at}/sub", f"{at}/again"], check=True)


def handled():
    """Who handles a signal that asks it to end gets EINTR from a look that waits, and not before it has waited for a while. A
    timer alone ends nothing."""
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    asks = subprocess.Popen(["sh", "-c", f"sleep 2; kill -TERM {os.getpid()}"])
    begun = time.monotonic()
    status = ctypes.create_string_buffer(512)
    code = libc.stat(f"{folder}/none".encode(), status)
    waited = time.monotonic() - begun
    if code == 0 or ctypes.get_errno() != errno.EINTR or not 1.8 < waited < 5:
        sys.exit(f"stat: {code}, {os.strerror(ctypes.get_errno())}, after {waited:.1f} s")
    asks.wait()


def undisturbed():
    """With servers that answer, signals end nothing."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    status = ctypes.create_string_buffer(512)
    until, calls = time.monotonic() + 4, 0
    while time.monotonic() < until:
        name = f"{folder}/n{calls}".encode()
        for code in (
            libc.mkdir(name, 0o755),
            libc.stat(name, status),
            libc.chmod(name, 0o700),
            libc.rmdir(name),
        ):
            if code != 0:
                sys.exit(f"a call beside signals: {os.strerror(ctypes.get_errno())}")
        calls += 4
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"{calls} calls beside signals")


for number in signal.SIGINT, signal.SIGKILL:
    at = f"{folder}/{int(number)}"
    prepare(at)
    # What the kernel remembers.
    time.sleep(1.5)
    to_servers(signal.SIGSTOP)
    ended(list(programs(at)), number)
    to_servers(signal.SIGCONT)
    works(at)
# And what the mount knows: that there is no such name.
time.sleep(1.5)
to_servers(signal.SIGSTOP)
handled()
to_servers(signal.SIGCONT)
os.stat(folder)
undisturbed()
