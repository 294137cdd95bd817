"""Other users, for tests that root runs."""

import errno
import os


def as_user(uid, gid, groups, what, at="."):
    """What `what` comes to for another user, who works in the folder `at`: None, or the error."""
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        # The way there may be closed to others.
        os.chdir(at)
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)
        try:
            what()
            said = b""
        except OSError as e:
            said = errno.errorcode[e.errno].encode()
        except BaseException as e:
            said = repr(e).encode()
        os.write(begin, said)
        os._exit(0)
    os.close(begin)
    said = b""
    while part := os.read(end, 4096):
        said += part
    os.close(end)
    os.waitpid(child, 0)
    return said.decode() or None
