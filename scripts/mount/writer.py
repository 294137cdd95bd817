"""writer.py FILE STOP: writes numbered lines with fsync, renames now and then, until STOP exists; any error ends it. Then
everything must be there."""

import os
import sys

log, stop = sys.argv[1:]
lines = 0
while not os.path.exists(stop) or lines < 10:
    # Opened again each time: a name is looked up, a file opened, written, synced, published, renamed.
    with open(log, "ab") as file:
        file.write(b"%d\n" % lines)
        file.flush()
        os.fsync(file.fileno())
    lines += 1
    os.rename(log, log + ".other")
    os.rename(log + ".other", log)
    os.mkdir(log + ".d")
    os.rmdir(log + ".d")

with open(log, "rb") as file:
    found = file.read()
wanted = b"".join(b"%d\n" % n for n in range(lines))
if found != wanted:
    sys.exit(f"{len(found)} bytes are there, not {len(wanted)}")
print(f"{lines} lines")
