"""Runs one command detached from whoever asked for it, keeps it in its limits, and writes down how it ended.

`python launcher.py FOLDER` reads FOLDER/command.json, detaches itself and returns when FOLDER/process.json
names what runs. At the command's end it kills what that left behind, and writes FOLDER/result.json.
FOLDER/lock is held until then, so two never run at once, and anybody can see whether one runs. It imports
nothing but the standard library and three modules that do so too, to start fast.

command.json: "argv"; "env", whole; "given", what it reads from standard input, or null; "cwd"; "log" and
"log_below", the folder that is trusted up to its own name; "group", that all processes belong to, or null;
"limits": "memory_bytes", "log_bytes", "processes", "folder_bytes" of all "folders" together, or null.

Exit codes: 0 it runs, or has ended (result.json is there); 75 another one runs.
"""

import errno
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":
    # At the end: nothing of ours takes the place of the standard library.
    sys.path.append(str(Path(__file__).parents[3]))

from spotweave.deploy.node import procfs
from spotweave.deploy.security.untrusted import anonymous_file, open_beneath, size_bytes
from spotweave.files import write_private

ALREADY_RUNNING = 75
_LOCK_TRIES = 40
_JOBS_FAULT = (errno.E2BIG, errno.ENAMETOOLONG)  # errors of a start that another try cannot mend
_FILES_OPEN = 65536
_FILES_MOST = 1_000_000
_LOOK_S = 2.0
_LOOK_LEAST_S = 0.1
_GROWTH_BYTES_S = 4 << 30  # assumed growth of memory: the closer to the limit, the sooner the next check
_WALK_SHARE = 0.02  # share of one core for walking through the folders


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


def _stay(number: int, frame: FrameType | None) -> None:
    """The command is asked to end by the same signal; the launcher stays to write down how it did.

    A handler, not SIG_IGN: the command would inherit that.
    """


def _supervise(folder: Path, lock: int, ready: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stay)
    command = json.loads((folder / "command.json").read_text())
    me = procfs.read(os.getpid())
    assert me is not None
    process = {"pid": me.pid, "start_ticks": me.start_ticks, "started_s": time.time()}
    write_private(folder / "process.json", json.dumps(process))
    os.write(ready, b"1")
    os.close(ready)
    # What the command leaves behind, in whatever session and with whatever variables, is the launcher's.
    procfs.adopt_orphans()
    result = _run(command, lock)
    _kill_rest(command["group"])
    write_private(folder / "result.json", json.dumps({**result, "ended_s": time.time()}))


def _run(command: dict[str, Any], lock: int) -> dict[str, object]:
    def prepare() -> None:
        procfs.die_with_parent()
        procfs.yield_to_scheduler()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = _FILES_OPEN if hard == resource.RLIM_INFINITY else min(hard, _FILES_OPEN)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    below = Path(command["log_below"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        log = open_beneath(below, os.path.relpath(command["log"], below), flags)
    except OSError as error:
        return _failed(f"cannot write {command['log']}: {error.strerror or error}", of_job=True)
    try:
        child = subprocess.Popen(
            command["argv"],
            env=command["env"],
            cwd=command["cwd"],
            stdin=subprocess.DEVNULL if command["given"] is None else anonymous_file(command["given"]),
            stdout=log,
            stderr=subprocess.STDOUT,
            # It keeps the lock while it outlives the launcher. Whoever is not trusted could let go of it.
            pass_fds=() if command["boxed"] else (lock,),
            preexec_fn=prepare,
        )
    except OSError as error:
        reason = f"cannot start {command['argv'][0]}: {error.strerror}"
        return _failed(reason, of_job=error.errno in _JOBS_FAULT)
    except ValueError as error:
        return _failed(f"cannot start {command['argv'][0]}: {error}", of_job=True)
    broken = _watch(child, command, log)
    if broken:
        _kill_rest(command["group"])
    code = child.wait()
    return _failed(broken, of_job=True, code=code) if broken else {"exit_code": code, "error": ""}


def _failed(error: str, *, of_job: bool, code: int = 127) -> dict[str, object]:
    return {"exit_code": code, "error": error, "of_job": of_job}


def _watch(child: "subprocess.Popen[bytes]", command: dict[str, Any], log: int) -> str:
    """Wait for its end. Returns which limit it broke, "" for none."""
    end = select.poll()
    end.register(os.pidfd_open(child.pid), select.POLLIN)
    limits, pause_s, walk_s = command["limits"], _LOOK_LEAST_S, 0.0
    while not end.poll(1000 * pause_s):
        _reap(child.pid)
        if limits is None:
            pause_s = _LOOK_S
            continue
        below = procfs.below(os.getpid())
        memory = sum(procfs.resident_bytes(pid) for pid in below)
        if memory > limits["memory_bytes"]:
            return _over("memory", limits["memory_bytes"] / (1 << 30), "GiB", "driver_memory_most_gib")
        if len(below) > limits["processes"]:
            return f"it had more than {limits['processes']} processes (runners.driver_processes_most)"
        if os.fstat(log).st_size > limits["log_bytes"]:
            return _over("log", limits["log_bytes"] / (1 << 20), "MiB", "driver_log_most_mib")
        if time.monotonic() > walk_s:
            began_s, total = time.monotonic(), 0
            for folder in command["folders"]:
                total += size_bytes(Path(folder), limits["folder_bytes"] - total, _FILES_MOST)
                if total > limits["folder_bytes"]:
                    return _over("files", limits["folder_bytes"] / (1 << 30), "GiB", "driver_files_most_gib")
            took_s = time.monotonic() - began_s
            walk_s = time.monotonic() + max(_LOOK_S, took_s / _WALK_SHARE)
        pause_s = max(_LOOK_LEAST_S, min(_LOOK_S, (limits["memory_bytes"] - memory) / _GROWTH_BYTES_S))
    return ""


def _over(what: str, most: float, unit: str, key: str) -> str:
    return f"its {what} came to more than {most:g} {unit} (runners.{key})"


def _reap(child: int) -> None:
    """Take leave of orphans, and leave the command's own end to its handle."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == child:
            return
        os.waitpid(found.si_pid, 0)


def _kill_rest(group: int | None) -> None:
    me = os.getpid()

    def rest(seen: list[procfs.Process]) -> list[procfs.Process]:
        below = procfs.descendants({me}, seen)
        return [
            one for one in seen if one.pid in below or (group is not None and group in procfs.groups(one.pid))
        ]

    procfs.kill_all(rest)


def main(folder: Path) -> int:
    """Detach and supervise."""
    os.umask(0o077)
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
