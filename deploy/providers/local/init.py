"""`python -m spotweave.deploy.providers.local.init STATE_FOLDER INSTANCE_ID`: switches an instance on.

The process that is started answers as soon as the instance exists, and leaves; the instance is its child, in
a session of its own, and belongs to nobody.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path


def _be_born(folder: Path) -> bool:
    """Become the one init of this instance and write down who that is; False if there is one already."""
    os.setsid()
    lock = os.open(folder / "init.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    # The lock stays open, and so taken, while this process lives. A second birth is never wanted either.
    if (folder / "init.json").exists():
        return False
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    birth = {"pid": os.getpid(), "start_ticks": int(fields[19]), "launched_s": time.time()}
    with (folder / ".init.json").open("w") as file:
        json.dump(birth, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / ".init.json", folder / "init.json")
    return True


def main() -> int:
    """Fork the instance, wait for its birth, leave."""
    # Nobody else on this machine reads what an instance writes.
    os.umask(0o077)
    state, name = Path(sys.argv[1]), sys.argv[2]
    folder = state / "instances" / name
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return 0 if os.read(reading, 1) else 1
    os.close(reading)
    if not _be_born(folder):
        return 1
    os.write(writing, b"!")
    os.close(writing)
    # Only now what takes a while to import.
    from spotweave.deploy.providers.local.machine import Machine

    Machine(state, name).run()
    return 0


if __name__ == "__main__":
    os._exit(main())
