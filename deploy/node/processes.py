"""The processes of a node: started once each, in sessions of their own, remembered by the next agent too."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from deploy.node import procfs
from deploy.node.api import ProcessSpec, ProcessStatus, Signal
from deploy.node.config import write_private

NODE_VARIABLE = "SPOTWEAVE_NODE_ID"
"""In the environment of everything that runs on a node: the instance's id."""
PROCESS_VARIABLE = "SPOTWEAVE_PROCESS_ID"
TAG_PREFIX = "SPOTWEAVE_NODE_"
"""Variables of the agent that begin so are passed on to its processes."""

_ADOPTED_CHECK_S = 1.0
"""How often processes of an earlier agent are looked at: they are not children, nothing tells their end."""
_log = logging.getLogger(__name__)


class DrainingError(Exception):
    """The node is about to end and starts nothing more."""


class StartError(Exception):
    """The command cannot be run; one line."""


class _Record(BaseModel):
    """A process as the state file keeps it. A PID of 0: it was about to start when the agent ended."""

    model_config = ConfigDict(extra="forbid")

    spec: ProcessSpec
    pid: int = 0
    start_ticks: int = 0
    state: Literal["running", "exited", "unknown"] = "running"
    exit_code: int | None = None
    started_s: float
    ended_s: float | None = None
    kill_at_s: float | None = None
    asked_to_stop: bool = False

    def status(self) -> ProcessStatus:
        return ProcessStatus(
            process_id=self.spec.process_id,
            pid=self.pid,
            state=self.state,
            exit_code=self.exit_code,
            started_s=self.started_s,
            ended_s=self.ended_s,
        )


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid")

    draining: bool = False
    processes: list[_Record] = []


class Processes:
    """All processes of a node. Safe to use from several threads.

    Every change is on the disk before it is acted on and again after, so that an agent that was killed at any
    moment knows what it had started: by PID and start time, or, if it was killed in between, by the variables
    that it gives to every process.
    """

    def __init__(self, instance_id: str, workdir: Path, state_folder: Path) -> None:
        self._instance_id = instance_id
        self._workdir = workdir
        self._file = state_folder / "processes.json"
        self._logs = state_folder / "logs"
        self._logs.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._children: dict[int, str] = {}
        self._records: dict[str, _Record] = {}
        self._draining = False
        self._closed = False
        if self._file.exists():
            self._adopt(_State.model_validate_json(self._file.read_bytes()))
        self._threads = (
            threading.Thread(target=self._reap, name="reaper", daemon=True),
            threading.Thread(target=self._keep, name="keeper", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    @property
    def draining(self) -> bool:
        """Whether nothing more is started."""
        return self._draining

    def log_path(self, process_id: str) -> Path:
        """Where the output of a known process is. Raises KeyError."""
        with self._lock:
            return self._logs / f"{self._records[process_id].spec.process_id}.log"

    def statuses(self) -> tuple[ProcessStatus, ...]:
        """All that are known, in the order of their start."""
        with self._lock:
            return tuple(record.status() for record in self._records.values())

    def status(self, process_id: str) -> ProcessStatus:
        """One process. Raises KeyError."""
        with self._lock:
            return self._records[process_id].status()

    def start(self, spec: ProcessSpec) -> ProcessStatus:
        """Start a process, once for ever: an id that is known changes nothing.

        Raises:
            DrainingError: if the node is.
            StartError: if the command cannot be run; the id stays free.
        """
        with self._lock:
            if spec.process_id in self._records:
                return self._records[spec.process_id].status()
            if self._draining:
                raise DrainingError
            record = _Record(spec=spec, started_s=time.time())
            self._records[spec.process_id] = record
            self._save()
            try:
                child = self._spawn(spec)
            except (OSError, ValueError) as error:
                del self._records[spec.process_id]
                self._save()
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                raise StartError(f"{spec.argv[0]}: {reason}") from error
            # The child is a zombie at worst until the reaper gets the lock, so it can be read.
            found = procfs.read(child.pid)
            record.pid = child.pid
            record.start_ticks = found.start_ticks if found else 0
            self._children[child.pid] = spec.process_id
            # Popen must never wait for it: the reaper does, for all children.
            child.returncode = 0
            self._save()
            self._changed.notify_all()
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
                record.kill_at_s = time.time() + record.spec.stop_grace_s
                again = record.asked_to_stop
                record.asked_to_stop = True
                self._save()
                if not again:
                    self._send(record, record.spec.stop_signal)
                self._changed.notify_all()
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
            self._save()
            for record in asked:
                self._send(record, record.spec.stop_signal)

    def freeze(self) -> None:
        """Start and note nothing more, ever: the machine is about to be switched off."""
        self._lock.acquire()

    def close(self) -> None:
        """Stop watching; processes go on and are found again by the next agent."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def _send(self, record: _Record, name: Signal) -> None:
        if record.state == "running":
            procfs.send(record.pid, record.start_ticks, getattr(signal, f"SIG{name}"))

    def _spawn(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._workdir), "LANG": "C.UTF-8"}
        env |= spec.env
        env |= {name: value for name, value in os.environ.items() if name.startswith(TAG_PREFIX)}
        env |= {NODE_VARIABLE: self._instance_id, PROCESS_VARIABLE: spec.process_id}
        handle = os.open(
            self._logs / f"{spec.process_id}.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        try:
            return subprocess.Popen(
                spec.argv,
                env=env,
                cwd=self._workdir,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(handle)

    def _save(self) -> None:
        state = _State(draining=self._draining, processes=list(self._records.values()))
        write_private(self._file, state.model_dump_json())

    def _adopt(self, state: _State) -> None:
        """Find what an earlier agent on this node had started."""
        self._draining = state.draining
        self._records = {record.spec.process_id: record for record in state.processes}
        unborn = {record.spec.process_id: record for record in state.processes if record.pid == 0}
        if unborn:
            for process in procfs.scan():
                tags = procfs.environment(process.pid)
                record = unborn.get(tags.get(PROCESS_VARIABLE, ""))
                # The leader of the session is the process itself, the others are its children.
                if record and tags.get(NODE_VARIABLE) == self._instance_id and process.session == process.pid:
                    record.pid, record.start_ticks = process.pid, process.start_ticks
        self._check_adopted()
        self._save()

    def _check_adopted(self) -> None:
        for record in self._records.values():
            if (
                record.state == "running"
                and record.pid not in self._children
                and not procfs.is_alive(record.pid, record.start_ticks)
            ):
                self._end_rest(record)
                record.state, record.ended_s = "unknown", time.time()
                self._save()
                _log.warning("%s ended unseen", record.spec.process_id)

    def _members(self, record: _Record) -> Callable[[list[procfs.Process]], list[procfs.Process]]:
        """Picks a process and everything that it started: its session, and who left the session."""

        def belongs(process: procfs.Process) -> bool:
            if process.pid == record.pid and process.start_ticks == record.start_ticks:
                return True
            tags = procfs.environment(process.pid)
            return (
                tags.get(NODE_VARIABLE) == self._instance_id
                and tags.get(PROCESS_VARIABLE) == record.spec.process_id
            )

        def select(processes: list[procfs.Process]) -> list[procfs.Process]:
            leader_is_ours = any(
                process.pid == record.pid and process.start_ticks == record.start_ticks
                for process in processes
            )
            return [
                process
                for process in processes
                if (leader_is_ours and process.session == record.pid) or belongs(process)
            ]

        return select

    def _end_rest(self, record: _Record) -> None:
        if not procfs.kill_all(self._members(record)):
            _log.error("%s left processes that cannot be killed", record.spec.process_id)

    def _reap(self) -> None:
        """Wait for children: ours, and orphans that the kernel gives to the agent."""
        while not self._closed:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                with self._changed:
                    if not self._closed:
                        self._changed.wait(_ADOPTED_CHECK_S)
                continue
            assert found is not None
            with self._lock:
                process_id = self._children.get(found.si_pid)
                if process_id is not None:
                    # Before its zombie goes: so long its PID names its session for certain.
                    record = self._records[process_id]
                    self._end_rest(record)
                    del self._children[found.si_pid]
                    record.state, record.ended_s = "exited", time.time()
                    code = found.si_status
                    record.exit_code = code if found.si_code == os.CLD_EXITED else -code
                    self._save()
                    _log.info("%s ended with %d", process_id, record.exit_code)
                os.waitpid(found.si_pid, 0)

    def _keep(self) -> None:
        """Kill what did not stop in its grace, and look after adopted processes."""
        with self._changed:
            while not self._closed:
                self._check_adopted()
                now = time.time()
                due = [record.kill_at_s for record in self._records.values() if self._pending(record)]
                for record in self._records.values():
                    if self._pending(record) and (record.kill_at_s or 0.0) <= now:
                        _log.warning("%s did not stop in its grace", record.spec.process_id)
                        self._end_rest(record)
                waits = [max(0.05, kill_at_s - now) for kill_at_s in due if kill_at_s is not None]
                adopted = any(
                    record.state == "running" and record.pid not in self._children
                    for record in self._records.values()
                )
                if adopted:
                    waits.append(_ADOPTED_CHECK_S)
                self._changed.wait(min(waits, default=None))

    @staticmethod
    def _pending(record: _Record) -> bool:
        return record.state == "running" and record.kill_at_s is not None
