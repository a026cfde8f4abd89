"""Runs one command detached from whoever asked for it, and writes down how it ended.

`python launcher.py FOLDER` reads FOLDER/command.json ({"argv", "env", "cwd", "log"}), detaches itself and
returns when FOLDER/process.json names what runs. At the command's end it writes FOLDER/result.json.
FOLDER/lock is held while the launcher or the command lives, so two never run at once, and anybody can see
whether one runs. It imports nothing but the standard library, to start fast.

Exit codes: 0 it runs, or has ended (result.json is there); 75 another one runs.
"""

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

ALREADY_RUNNING = 75
_PR_SET_PDEATHSIG = 1
_LOCK_TRIES = 40


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _write(path: Path, content: Mapping[str, object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", opener=_private) as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _lock(folder: Path) -> int | None:
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            # Someone who only looks whether it is held lets go at once.
            time.sleep(0.05)
    os.close(handle)
    return None


def _start_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _stay(number: int, frame: FrameType | None) -> None:
    """The command is asked to end by the same signal; the launcher stays to write down how it did.

    A handler, not SIG_IGN: the command would inherit that.
    """


def _supervise(folder: Path, lock: int, ready: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stay)
    command = json.loads((folder / "command.json").read_text())
    own = {"pid": os.getpid(), "start_ticks": _start_ticks(os.getpid()), "started_s": time.time()}
    _write(folder / "process.json", own)
    os.write(ready, b"1")
    os.close(ready)
    libc = ctypes.CDLL(None)

    def die_with_launcher() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    try:
        with open(command["log"], "ab", opener=_private) as log:
            child = subprocess.Popen(
                command["argv"],
                env=command["env"],
                cwd=command["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                preexec_fn=die_with_launcher,
            )
        result = {"exit_code": child.wait(), "error": ""}
    except OSError as error:
        result = {"exit_code": 127, "error": f"cannot start {command['argv'][0]}: {error.strerror}"}
    _write(folder / "result.json", {**result, "ended_s": time.time()})


def main(folder: Path) -> int:
    """Detach and supervise."""
    lock = _lock(folder)
    if lock is None:
        return ALREADY_RUNNING
    if (folder / "result.json").exists():
        return 0
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        return 0 if os.read(told, 1) else 1
    os.close(told)
    os.setsid()
    # The caller may wait for the end of its pipes.
    with open(os.devnull, "r+b") as null:
        for number in (0, 1, 2):
            os.dup2(null.fileno(), number)
    _supervise(folder, lock, tell)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
