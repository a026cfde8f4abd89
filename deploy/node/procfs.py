"""Processes as Linux shows them under /proc, named by PID and start time: PIDs are used again.

Not psutil: its look at all processes takes four times as long, and what forks as fast as it is killed ends by
quick looks only; it also signals whatever has a PID after its check, not what a pidfd holds.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ENDED = frozenset("ZXx")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_BADNESS = 500
# Looked up before any fork: a child of a program with threads should load nothing.
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """One process at one moment."""

    pid: int
    start_ticks: int  # clock ticks from the machine's start to the process's start: with `pid`, unique
    ppid: int
    session: int
    alive: bool  # False for a zombie
    stopped: bool = False  # by a signal


def read(pid: int) -> Process | None:
    """The process with this PID, None if there is none."""
    stat = _content(pid, "stat")
    if not stat:
        return None
    # The second field is the name in brackets and may itself hold brackets and spaces.
    fields = stat[stat.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    return Process(pid, int(fields[19]), int(fields[1]), int(fields[3]), state not in _ENDED, state == "T")


def _content(pid: int, name: str) -> bytes:
    """One of the files of a process; empty if it has ended, or the file may not be read."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def scan() -> Iterator[Process]:
    """Every process that can be seen."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := read(int(name))) is not None:
            yield found


def is_alive(pid: int, start_ticks: int) -> bool:
    """Whether exactly this process still runs (a zombie does not)."""
    found = read(pid)
    return found is not None and found.alive and found.start_ticks == start_ticks


def environment(pid: int) -> dict[str, str]:
    """The variables it was started with; empty if they may not be read."""
    pairs = (entry.partition(b"=") for entry in _content(pid, "environ").split(b"\0") if b"=" in entry)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def name(pid: int) -> str:
    """What it calls itself: its program, unless it chose something else; "" if it has ended."""
    return _content(pid, "comm").decode(errors="replace").rstrip("\n")


def groups(pid: int) -> frozenset[int]:
    """Supplementary groups, which a process without rights cannot leave; empty if it has ended."""
    lines = _content(pid, "status").splitlines()
    line = next((line for line in lines if line.startswith(b"Groups:")), b"")
    return frozenset(int(number) for number in line.split()[1:])


def resident_bytes(pid: int) -> int:
    """Resident memory in bytes, shared pages included; 0 if the process has ended."""
    fields = _content(pid, "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def send(pid: int, start_ticks: int, number: int) -> bool:
    """Signal exactly this process; False if it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The handle holds whatever has the PID now; only then is it certain whom the check is about.
        if not is_alive(pid, start_ticks):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def children(pid: int) -> list[int]:
    """PIDs of its children, zombies too; none if it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return found


def descendants(roots: set[int], processes: list[Process]) -> set[int]:
    """PIDs of everything below these PIDs, without them."""
    found: set[int] = set()
    fresh = set(roots)
    while fresh:
        fresh = {process.pid for process in processes if process.ppid in fresh} - found - roots
        found |= fresh
    return found


def adopt_orphans() -> None:
    """Become the parent of whatever descendants leave behind, as init would. It outlives an exec."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel SIGKILL this process when its parent ends. It outlives an exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def yield_to_scheduler() -> None:
    """Let the kernel, out of memory, end this before the scheduler; no core dumps. Children inherit it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Some containers do not allow it; nothing depends on it.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_BADNESS))


def below(pid: int) -> set[int]:
    """PIDs of everything below a process, as `descendants`, without looking at all others."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        fresh = set(children(waiting.pop())) - found
        found |= fresh
        waiting += fresh
    return found


def kill_all(select: Callable[[list[Process]], list[Process]], within_s: float = 10.0) -> bool:
    """SIGKILL what `select` picks, again and again; False if something could not be killed in time."""
    end = time.monotonic() + within_s
    pause_s = 0.002
    asked: set[tuple[int, int]] = set()
    while True:
        left = [process for process in select(list(scan())) if process.alive]
        if not left:
            return True
        # What is stopped forks no more and still counts: so what forks faster than it is killed ends too.
        fresh = [one for one in left if not one.stopped and (one.pid, one.start_ticks) not in asked]
        for process in fresh or left:
            send(process.pid, process.start_ticks, signal.SIGSTOP if fresh else signal.SIGKILL)
        asked |= {(process.pid, process.start_ticks) for process in fresh}
        if time.monotonic() > end:
            return False
        if not fresh:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)


def kill_children(select: Callable[[int], bool], within_s: float) -> bool:
    """SIGKILL those children of this process that `select` picks by their PIDs, until there are none.

    Who has adopted orphans gets the children of what it kills, so this ends whole families. As it looks at
    direct children only, it is quick enough to meet what forks and exits for ever. Returns whether none is
    left; False if time was too short.
    """
    end = time.monotonic() + within_s
    own = os.getpid()
    while time.monotonic() < end:
        strays = [pid for pid in children(own) if select(pid)]
        if not strays:
            return True
        for pid in strays:
            found = read(pid)
            if found is not None and found.ppid == own and found.alive:
                send(pid, found.start_ticks, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return False
