"""What permissions forbid is refused to whoever asks, on the mount in argv[1], be it by the kernel or by the servers. As root, as other users.

argv[2]: `kernel` if the kernel checks by itself: it alone refuses to leave a working directory upwards that may not be searched any more."""

import errno
import os
import shutil
import subprocess
import sys

from users import as_user

A, B, C, GROUP = 4001, 4002, 4003, 4009
at = "permissions"
wrong = []


def expect(wanted, what, uid, call, groups=()):
    """`wanted`: an error's name, or ok."""
    same(wanted, f"{what} by {uid}", as_user(uid, uid, list(groups), call) or "ok")


def same(wanted, what, got):
    if got != wanted:
        wrong.append(f"{what}: {got}, not {wanted}")


def make(path, bits=0o644):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, bits))


def may(path, how):
    if not os.access(path, how):
        raise OSError(errno.EACCES, path)


def opened(path, flags):
    os.close(os.open(path, flags))


def mode(path):
    return oct(os.stat(path).st_mode & 0o7777)


def directories():
    os.mkdir(f"{at}/own", 0o700)
    os.chown(f"{at}/own", A, A)
    as_user(A, A, [], lambda: (os.mkdir(f"{at}/own/in", 0o755), make(f"{at}/own/in/file")))
    file = f"{at}/own/in/file"
    for _ in range(3):  # also when another has just found it
        expect("ok", "stat", A, lambda: os.stat(file))
        expect("ENOENT", "what is not there", A, lambda: os.stat(f"{at}/own/none"))
        expect("EACCES", "stat", B, lambda: os.stat(file))
        expect("EACCES", "open", B, lambda: opened(file, os.O_RDONLY))
        expect("EACCES", "access", B, lambda: may(file, os.R_OK))
        expect("EACCES", "what is not there", B, lambda: os.stat(f"{at}/own/none"))
    listing = os.O_RDONLY | os.O_DIRECTORY
    expect("EACCES", "list", B, lambda: os.listdir(f"{at}/own"))
    expect("EACCES", "opendir", B, lambda: opened(f"{at}/own", listing))
    expect("EACCES", "chdir", B, lambda: os.chdir(f"{at}/own"))
    expect("EACCES", "create", B, lambda: make(f"{at}/own/new"))
    expect("EACCES", "create", B, lambda: make(f"{at}/new"))
    expect("EACCES", "unlink", B, lambda: os.unlink(file))
    os.chmod(f"{at}/own", 0o711)
    expect("ok", "stat below what may be searched", B, lambda: os.stat(file))
    expect("ok", "chdir to it", B, lambda: os.chdir(f"{at}/own"))
    expect("EACCES", "list it", B, lambda: os.listdir(f"{at}/own"))
    expect("EACCES", "opendir of it", B, lambda: opened(f"{at}/own", listing))
    os.mkdir(f"{at}/sticky")
    os.chmod(f"{at}/sticky", 0o1777)
    as_user(A, A, [], lambda: make(f"{at}/sticky/file"))
    expect("EPERM", "sticky unlink", B, lambda: os.unlink(f"{at}/sticky/file"))
    expect("EPERM", "sticky rename", B, lambda: os.rename(f"{at}/sticky/file", f"{at}/sticky/other"))
    expect("ok", "sticky unlink", A, lambda: os.unlink(f"{at}/sticky/file"))


def files():
    file = f"{at}/own/in/file"
    expect("ok", "read", B, lambda: opened(file, os.O_RDONLY))
    expect("EACCES", "write", B, lambda: opened(file, os.O_WRONLY))
    expect("EACCES", "truncate", B, lambda: os.truncate(file, 0))
    expect("EPERM", "chmod", B, lambda: os.chmod(file, 0o777))
    expect("EPERM", "chown", A, lambda: os.chown(file, B, -1))
    expect("EACCES", "touch", B, lambda: os.utime(file, None))
    expect("EPERM", "utime", B, lambda: os.utime(file, (1, 1)))
    expect("EACCES", "setxattr", B, lambda: os.setxattr(file, "user.a", b"1"))
    expect("ok", "setxattr", A, lambda: os.setxattr(file, "user.a", b"1"))
    expect("ok", "getxattr", B, lambda: os.getxattr(file, "user.a"))
    expect("EPERM", "setxattr of trusted", A, lambda: os.setxattr(file, "trusted.a", b"1"))
    os.chmod(file, 0o640)
    os.chown(file, A, GROUP)
    expect("EACCES", "getxattr", B, lambda: os.getxattr(file, "user.a"))
    expect("EACCES", "read", B, lambda: opened(file, os.O_RDONLY))
    expect("ok", "read in the group", B, lambda: opened(file, os.O_RDONLY), [GROUP])
    expect("EACCES", "write in the group", B, lambda: opened(file, os.O_RDWR), [GROUP])
    as_user(A, A, [], lambda: os.chmod(file, 0o2755))
    same("0o755", "set-gid by who is not in the group", mode(file))


def programs():
    program = f"{at}/program"
    shutil.copy("/bin/true", program)
    os.chown(program, A, GROUP)

    def run():
        os.waitpid(os.posix_spawn(program, [program], {}), 0)

    for bits in (0o755, 0o711, 0o701, 0o111):
        os.chmod(program, bits)
        expect("ok", f"run {bits:o}", B, run)
    for bits in (0o744, 0o644, 0o754, 0o666):
        os.chmod(program, bits)
        expect("EACCES", f"run {bits:o}", B, run)
        expect("EACCES", f"access to run {bits:o}", B, lambda: may(program, os.X_OK))
    os.chmod(program, 0o654)
    expect("ok", "run 654 in the group", B, run, [GROUP])
    expect("EACCES", "run 654", A, run)
    os.chmod(program, 0o6777)
    same("0o6777", "set-id bits", mode(program))

    def write():
        fd = os.open(program, os.O_WRONLY)
        os.write(fd, b"x")
        os.close(fd)

    expect("ok", "write", B, write)
    same("0o777", "set-id bits after a write", mode(program))


def lists():
    folder = f"{at}/list"
    os.mkdir(folder, 0o700)
    make(f"{folder}/file", 0o600)
    for path in (folder, f"{folder}/file"):
        os.chown(path, A, A)
    setfacl = lambda *words: subprocess.run(["setfacl", *words], check=True)
    expect("EACCES", "stat before", B, lambda: os.stat(f"{folder}/file"))
    setfacl("-m", f"u:{B}:rx", folder)
    setfacl("-m", f"u:{B}:r", f"{folder}/file")
    expect("ok", "stat", B, lambda: os.stat(f"{folder}/file"))
    expect("ok", "access", B, lambda: may(f"{folder}/file", os.R_OK))
    expect("ok", "read", B, lambda: opened(f"{folder}/file", os.O_RDONLY))
    expect("EACCES", "write", B, lambda: opened(f"{folder}/file", os.O_WRONLY))
    expect("ok", "list", B, lambda: os.listdir(folder))
    expect("EACCES", "list", C, lambda: os.listdir(folder))
    setfacl("-m", "m::-", folder)
    expect("EACCES", "list behind the mask", B, lambda: os.listdir(folder))
    expect("EACCES", "stat behind the mask", B, lambda: os.stat(f"{folder}/file"))
    setfacl("-b", folder)
    expect("EACCES", "stat after", B, lambda: os.stat(f"{folder}/file"))
    # Where there is a default list the umask does not count.
    setfacl("-d", "-m", f"u:{B}:rw", f"{at}/sticky")
    os.umask(0o077)
    as_user(A, A, [], lambda: make(f"{at}/sticky/inherits", 0o666))
    same("0o666", "mode by a default list", mode(f"{at}/sticky/inherits"))
    make(f"{at}/masked", 0o666)
    same("0o600", "mode by the umask", mode(f"{at}/masked"))
    os.umask(0o022)


def working_directory():
    """Searched until it may not be any more."""
    os.makedirs(f"{at}/work/in")
    make(f"{at}/work/other")
    inside = os.open(f"{at}/work/in", os.O_RDONLY | os.O_DIRECTORY)
    os.chmod(f"{at}/work/in", 0o700)

    def from_inside(look):
        # Root may still go there.
        return as_user(B, B, [], look, inside) or "ok"

    same("EACCES", "a name in a working directory that is closed", from_inside(lambda: os.stat("file")))
    same("EACCES", "its names", from_inside(lambda: os.listdir(".")))
    upwards = "EACCES" if sys.argv[2] == "kernel" else "ok"
    same(upwards, "upwards from it", from_inside(lambda: os.stat("../other")))
    os.close(inside)


# The way there may be closed to others.
os.chdir(sys.argv[1])
os.mkdir(at, 0o755)
directories()
files()
programs()
if shutil.which("setfacl"):
    lists()
working_directory()
shutil.rmtree(at)
for line in wrong:
    print(line)
sys.exit(bool(wrong))
