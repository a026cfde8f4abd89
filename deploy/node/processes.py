"""The processes of a node: started once each, in sessions of their own, remembered by the next agent too.

Each adopts what its descendants leave behind, as init does, and the agent adopts what is left when it ends.
So whatever a process has started is below it while it lives and a child of the agent afterwards: neither a
new session nor an empty environment hides it, and all of it ends with the process.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ConfigDict, Field

from spotweave.deploy.node import procfs
from spotweave.deploy.node.api import MOST_PROCESSES, ProcessSpec, ProcessStatus, RefusalError, Signal
from spotweave.deploy.node.server import Logs
from spotweave.deploy.statefile import StateFile


class Record(ProcessStatus):
    """A process. Of its command and its environment, which may hold secrets, nothing is kept."""

    model_config = ConfigDict(frozen=False)

    stop_signal: Signal
    stop_grace_s: float
    start_ticks: int = 0  # with its PID, unique
    # when its grace ends: seconds since the machine's start, which no clock's correction moves
    kill_at_s: float | None = None
    asked_to_stop: bool = False  # whether it got its stop signal

    def status(self) -> ProcessStatus:
        """As it is told of."""
        return ProcessStatus.model_validate(self.model_dump(include=set(ProcessStatus.model_fields)))


class State(StateFile):
    """All of a node."""

    draining: bool = False
    processes: list[Record] = Field(default_factory=list)


NODE_VARIABLE = "SPOTWEAVE_NODE_ID"
"""In the environment of everything that runs on a node: the instance's id."""
PROCESS_VARIABLE = "SPOTWEAVE_PROCESS_ID"
TAG_PREFIX = "SPOTWEAVE_NODE_"  # variables of the agent that begin so are passed on to its processes

_CHECK_S = 1.0  # how often logs are looked at, and processes of an earlier agent: those are not children
_HURRY_S = 0.1
_KILL_WITHIN_S = 5.0
_log = logging.getLogger(__name__)


class Processes:
    """All processes of a node. Safe to use from several threads.

    Nothing waits for a disk or for the end of a process to learn how processes are: the heartbeat goes on.

    Every change is on the disk before it is acted on and again after, so that an agent that was killed at any
    moment knows what it had started: by PID and start time, or, if it was killed in between, by the variables
    that it gives to every process.
    """

    def __init__(
        self, instance_id: str, workdir: Path, state_folder: Path, given: Mapping[str, str] | None = None
    ) -> None:
        self._instance_id = instance_id
        self._given = given or {}
        self._workdir = workdir
        self._file = state_folder / "processes.json"
        self._logs = Logs(state_folder / "logs")
        self._lock = threading.RLock()
        self._children: dict[int, str] = {}
        """By PID: those that this agent started and whose end it has not seen yet."""
        self._records: dict[str, Record] = {}
        self._known: dict[str, ProcessStatus] = {}
        """Reported statuses; read without the lock."""
        self._draining = False
        self._closed = False
        self._unsaved = False
        self._strays_left = False
        self._born = threading.Event()
        self._news = threading.Event()
        if (state := State.load(self._file)) is not None:
            self._adopt(state)
        self._threads = (
            threading.Thread(target=self._reap, name="reaper", daemon=True),
            threading.Thread(target=self._keep, name="keeper", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    @property
    def draining(self) -> bool:
        """Whether no more processes are started."""
        return self._draining

    def log_path(self, process_id: str) -> Path:
        """Path of a known process's output. Raises KeyError."""
        return self._logs.path(self._known[process_id].process_id)

    def statuses(self) -> tuple[ProcessStatus, ...]:
        """All that are known, in the order of their start."""
        return tuple(self._known.values())

    def status(self, process_id: str) -> ProcessStatus:
        """One process. Raises KeyError."""
        return self._known[process_id]

    def start(self, spec: ProcessSpec) -> ProcessStatus:
        """Start a process, once for ever: an id that is known changes nothing.

        Raises:
            RefusalError: if the node is draining or knows too many, or the command cannot be run.
            OSError: if it cannot be written down. The id stays free.
        """
        with self._lock:
            if spec.process_id in self._records:
                return self._records[spec.process_id].status()
            if self._draining:
                raise RefusalError(409, "the node is draining and starts nothing more")
            if len(self._records) >= MOST_PROCESSES:
                raise RefusalError(429, "the node has had as many processes as it may")
            record = Record(
                process_id=spec.process_id,
                # It is about to start: another agent must look for it.
                pid=0,
                state="running",
                stop_signal=spec.stop_signal,
                stop_grace_s=spec.stop_grace_s,
                started_s=time.time(),
            )
            self._records[spec.process_id] = record
            try:
                self._save()
                child = self._spawn(spec)
            except (OSError, ValueError) as error:
                del self._records[spec.process_id]
                if self._unsaved:
                    raise
                self._try_to_save()
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                raise RefusalError(422, f"cannot start {spec.argv[0]}: {reason}") from error
            # The child is a zombie at worst until the reaper gets the lock, so it can be read.
            found = procfs.read(child.pid)
            record.pid = child.pid
            record.start_ticks = found.start_ticks if found else 0
            self._children[child.pid] = spec.process_id
            # Popen must never wait for it: the reaper does, for all children.
            child.returncode = 0
            self._note(record)
            self._try_to_save()
            self._born.set()
            self._news.set()
            _log.info("started %s as %d", spec.process_id, child.pid)
            return record.status()

    def signal(self, process_id: str, name: Signal) -> ProcessStatus:
        """Signal the process itself, not what it started. Raises KeyError."""
        with self._lock:
            record = self._records[process_id]
            self._send(record, name)
            return record.status()

    def stop(self, process_id: str) -> ProcessStatus:
        """Send the stop signal now, SIGKILL to all of it after the grace; does not wait. Raises KeyError."""
        with self._lock:
            record = self._records[process_id]
            if record.state == "running" and record.kill_at_s is None:
                record.kill_at_s = _since_boot_s() + record.stop_grace_s
                again = record.asked_to_stop
                record.asked_to_stop = True
                self._try_to_save()
                if not again:
                    self._send(record, record.stop_signal)
                self._news.set()
            return record.status()

    def drain(self) -> None:
        """Start nothing more, and ask all that run to stop; each is asked once, none is killed."""
        with self._lock:
            self._draining = True
            asked = [
                record
                for record in self._records.values()
                if record.state == "running" and not record.asked_to_stop
            ]
            for record in asked:
                record.asked_to_stop = True
            self._try_to_save()
            for record in asked:
                self._send(record, record.stop_signal)

    def close(self) -> None:
        """Stop watching; processes go on and are found again by the next agent."""
        self._closed = True
        self._born.set()
        self._news.set()

    def _send(self, record: Record, name: Signal) -> None:
        if record.state == "running":
            procfs.send(record.pid, record.start_ticks, getattr(signal, f"SIG{name}"))

    def _spawn(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._workdir), "LANG": "C.UTF-8"}
        env |= {**self._given, **spec.env}
        env |= {name: value for name, value in os.environ.items() if name.startswith(TAG_PREFIX)}
        env |= {NODE_VARIABLE: self._instance_id, PROCESS_VARIABLE: spec.process_id}
        handle = self._logs.open(spec.process_id)
        try:
            return subprocess.Popen(
                spec.argv,
                env=env,
                cwd=self._workdir,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=procfs.adopt_orphans,
            )
        finally:
            os.close(handle)

    def _save(self) -> None:
        state = State(draining=self._draining, processes=list(self._records.values()))
        self._unsaved = True
        state.save(self._file)
        self._unsaved = False

    def _try_to_save(self) -> None:
        """Write down what has happened anyway; where that cannot be now (a full disk), later."""
        try:
            self._save()
        except OSError as error:
            _log.error("%s cannot be written: %s", self._file, error.strerror)

    def _note(self, record: Record) -> None:
        self._known[record.process_id] = record.status()

    def _adopt(self, state: State) -> None:
        self._draining = state.draining
        self._records = {record.process_id: record for record in state.processes}
        unborn = {record.process_id: record for record in state.processes if record.pid == 0}
        if unborn:
            for process in procfs.scan():
                tags = procfs.environment(process.pid)
                record = unborn.get(tags.get(PROCESS_VARIABLE, ""))
                # The leader of the session is the process itself, the others are its children.
                if record and tags.get(NODE_VARIABLE) == self._instance_id and process.session == process.pid:
                    record.pid, record.start_ticks = process.pid, process.start_ticks
        for record in self._records.values():
            self._note(record)
        self._check_adopted()
        self._save()

    def _running(self, *, adopted: bool = False) -> list[Record]:
        with self._lock:
            return [
                record
                for record in self._records.values()
                if record.state == "running" and not (adopted and record.pid in self._children)
            ]

    def _check_adopted(self) -> None:
        for record in self._running(adopted=True):
            if not procfs.is_alive(record.pid, record.start_ticks):
                self._kill(record)
                with self._lock:
                    record.state, record.ended_s = "unknown", time.time()
                    self._note(record)
                    self._try_to_save()
                _log.warning("%s ended unseen", record.process_id)

    def _kill(self, record: Record) -> None:
        if self._kill_group(record):
            # What is not in its group becomes the agent's child now, see `_bury`.
            return

        def members(seen: list[procfs.Process]) -> list[procfs.Process]:
            family = {
                one.pid for one in seen if (one.pid, one.start_ticks) == (record.pid, record.start_ticks)
            }
            family |= procfs.descendants(family, seen)
            return [one for one in seen if one.pid in family or self._bears(one, record)]

        if not procfs.kill_all(members, _KILL_WITHIN_S):
            _log.error("%s has processes that cannot be killed", record.process_id)

    def _kill_group(self, record: Record) -> bool:
        """SIGKILL its group at once. False if this agent did not start it: then its PID is not certain."""
        with self._lock:
            if record.pid not in self._children:
                return False
            with suppress(ProcessLookupError):
                os.killpg(record.pid, signal.SIGKILL)
            return True

    def _bears(self, process: procfs.Process, record: Record) -> bool:
        tags = procfs.environment(process.pid)
        return (tags.get(NODE_VARIABLE), tags.get(PROCESS_VARIABLE)) == (self._instance_id, record.process_id)

    def _kill_strays(self) -> None:
        """SIGKILL what the agent has adopted: who started it has ended."""

        def is_stray(pid: int) -> bool:
            # A start that is under way has noted its child when the lock is free.
            with self._lock:
                return pid not in self._children

        self._strays_left = not procfs.kill_children(is_stray, _KILL_WITHIN_S)
        if self._strays_left:
            _log.error("ended processes have left some that cannot be killed yet")

    def _reap(self) -> None:
        """Wait for children: ours, and orphans that the kernel gives to the agent."""
        while not self._closed:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                self._born.wait(_CHECK_S)
                self._born.clear()
                continue
            assert found is not None
            try:
                self._bury(found)
            except Exception:
                _log.exception("the end of process %d could not be noted", found.si_pid)
            finally:
                # A command that could not be run is waited for by whoever tried.
                with suppress(ChildProcessError):
                    os.waitpid(found.si_pid, 0)

    def _bury(self, found: os.waitid_result) -> None:
        with self._lock:
            process_id = self._children.get(found.si_pid)
        if process_id is None:
            return
        record = self._records[process_id]
        # Before its zombie goes: so long its PID names its group for certain.
        self._kill_group(record)
        self._kill_strays()
        with self._lock:
            del self._children[found.si_pid]
            code = found.si_status
            record.exit_code = code if found.si_code == os.CLD_EXITED else -code
            record.state, record.ended_s = "exited", time.time()
            self._note(record)
            self._try_to_save()
        _log.info("%s ended with %d", process_id, record.exit_code)

    def _keep(self) -> None:
        """Kill what did not stop in its grace, shorten logs, and look after adopted processes."""
        while not self._closed:
            try:
                wait_s = self._look_after()
            except Exception:
                _log.exception("processes could not be looked after")
                wait_s = _CHECK_S
            self._news.wait(wait_s)
            self._news.clear()

    def _look_after(self) -> float | None:
        """One look. Returns after how long the next one is due; None: after the next start."""
        self._check_adopted()
        running = self._running()
        long = [record for record in running if self._logs.shorten(record.process_id)]
        now_s = _since_boot_s()
        waits = [_HURRY_S] if long else []
        for record in running:
            if record.kill_at_s is not None and record.kill_at_s <= now_s:
                _log.warning("%s did not stop in its grace", record.process_id)
                self._kill(record)
                waits.append(_HURRY_S)
            elif record.kill_at_s is not None:
                waits.append(record.kill_at_s - now_s)
        if self._strays_left:
            self._kill_strays()
        if self._unsaved:
            with self._lock:
                self._try_to_save()
        if running or self._strays_left or self._unsaved:
            waits.append(_CHECK_S)
        return min(waits, default=None)


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
