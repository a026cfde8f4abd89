"""Attempts as the runner remembers them, to be found again after a restart; and why their drivers failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.model.tasks import Assignment, Node, Phase
from spotweave.deploy.runners.detached import Detached
from spotweave.deploy.security.untrusted import remove_tree
from spotweave.deploy.statefile import StateFile
from spotweave.files import write_private


class Record(StateFile):
    """Record of a requested attempt."""

    ui_port: int  # that its driver's web pages were to take
    nodes: tuple[Node, ...]  # where it was to run, with their tokens


class _Verdict(StateFile):
    phase: Phase
    message: str


class Attempt:
    """One attempt's folder below the runner's state: `JOB/TASK.NUMBER`.

    Files: attempt.json (`Record`, mode 0600), driver/ (see detached.py), own/ (all of it that the driver may
    see), tmp/ (its /tmp), has_run, ending (why it is being ended), verdict.json (how it ended, once that is
    decided; changed afterwards only by `refute`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "own"
        self.tmp = folder / "tmp"
        self.driver = Detached(folder / "driver")
        task, _, number = folder.name.rpartition(".")
        self.key, self.number = TaskKey(folder.parent.name, task), int(number)

    @property
    def attempt_id(self) -> str:
        """As of the assignment."""
        return f"{self.key.job_id}.{self.key.task}.{self.number}"

    @property
    def known(self) -> bool:
        """Whether the attempt was ever requested."""
        return (self.folder / "attempt.json").exists()

    @property
    def record(self) -> Record | None:
        """What was asked for; None if nothing was, or what was written down is damaged."""
        return Record.load_whole(self.folder / "attempt.json")

    def remember(self, assignment: Assignment, ui_port: int) -> None:
        """Write down what is about to be started."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        Record(ui_port=ui_port, nodes=assignment.nodes).save(self.folder / "attempt.json")

    @property
    def has_run(self) -> bool:
        """Whether the attempt ever had executors."""
        return (self.folder / "has_run").exists()

    def note_executors(self) -> None:
        """Remember that it has had executors."""
        (self.folder / "has_run").touch(mode=0o600)

    @property
    def ending(self) -> str | None:
        """Why its driver is being ended; None if it is not, or by itself."""
        try:
            return (self.folder / "ending").read_text(errors="replace")
        except FileNotFoundError:
            return None

    @ending.setter
    def ending(self, why: str) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.folder / "ending", why)

    @property
    def verdict(self) -> tuple[Phase, str] | None:
        """How it ended and why; None while that is open, or if what was written down is damaged."""
        found = _Verdict.load_whole(self.folder / "verdict.json")
        return None if found is None else (found.phase, found.message)

    def decide(self, phase: Phase, message: str) -> tuple[Phase, str]:
        """Write down how it ended, unless that is decided already; what counts is returned."""
        if (earlier := self.verdict) is not None:
            return earlier
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _Verdict(phase=phase, message=message).save(self.folder / "verdict.json")
        return phase, message

    def refute(self, why: str) -> None:
        """Mark as failed an attempt that ended without doing its work."""
        _Verdict(phase=Phase.FAILED, message=why).save(self.folder / "verdict.json")

    def clear(self) -> None:
        """Remove what only its driver, which has ended, needed: secrets, shuffle files. Raises OSError."""
        remove_tree(self.own)
        remove_tree(self.tmp)


class Attempts:
    """All attempts that are remembered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def get(self, assignment: Assignment) -> Attempt:
        """An attempt, known or not."""
        return Attempt(self.job_folder(assignment.key.job_id) / f"{assignment.key.task}.{assignment.attempt}")

    def of_job(self, job_id: str) -> Iterator[Attempt]:
        """All attempts of a job."""
        for file in sorted(self.job_folder(job_id).glob("*/attempt.json")):
            yield Attempt(file.parent)

    def jobs(self) -> Iterator[str]:
        """All jobs that are remembered."""
        for folder in sorted(self._folder.glob("*")):
            yield folder.name

    def forget(self, job_id: str) -> None:
        """Remove all that is remembered of a job. Raises OSError."""
        remove_tree(self.job_folder(job_id))

    def job_folder(self, job_id: str) -> Path:
        """Folder of a job's records."""
        return self._folder / job_id


LONGEST = 300

_NO_MASTER = "All masters are unresponsive"
_INFRASTRUCTURE = (
    _NO_MASTER,
    "ExecutorLostFailure",
    "FetchFailed",
    "MetadataFetchFailedException",
    "Connection refused",
    "Connection reset",
    "Master removed our application",
    "Remote RPC client disassociated",
    "SparkContext was shut down",
    "cancelled because SparkContext",
    "BlockMissingException",
    "Could not find CoarseGrainedScheduler",
    "Worker Decommission",
)
_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(: .*)?$")
_LOG_LINE = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|WARN|ERROR|DEBUG) ")


def last_error(log: str) -> str:
    """The cause of a failure in what a driver printed; "" if it does not say.

    The innermost exception of Python is the user's own, also where it reached the driver wrapped into several
    of Java's; else the last exception or error that is named.
    """
    return _short(_whole_error(log))


def _whole_error(log: str) -> str:
    lines = log.splitlines()
    for start in reversed([at for at, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)]):
        found = _python_error(lines, start)
        if found:
            return found
    for line in reversed(lines):
        text = _LOG_LINE.sub("", line).strip()
        if re.search(r"\b(Error|ERROR)\b|Exception: |Exception in thread|can't open file|No such file", line):
            return text.removeprefix('Exception in thread "main" ')
    return ""


def _python_error(lines: list[str], start: int) -> str:
    for at in range(start + 1, len(lines)):
        line = lines[at]
        if not line or line[0].isspace() or _LOG_LINE.match(line):
            continue
        if not _ERROR.match(line):
            return ""
        # Py4J names the Java exception in the next line.
        if line.startswith("py4j.") and at + 1 < len(lines) and lines[at + 1].startswith(": "):
            return lines[at + 1][2:]
        return line
    return ""


def by_cluster(log: str, nodes_lost: bool) -> bool:
    """Whether a failed driver failed because of the cluster, by what it printed.

    Where no node is lost, a lost executor is the job's own doing (out of memory, a crash in native code),
    and trying again would fail again.
    """
    if _NO_MASTER in log:
        return True
    if not nodes_lost:
        return False
    error = _whole_error(log)
    return not error or (any(sign in log for sign in _INFRASTRUCTURE) and not _is_users(error))


def _is_users(error: str) -> bool:
    """Whether the exception is one that nodes do not cause."""
    kind = error.partition(":")[0]
    java = kind.startswith(("java.", "org.apache.", "scala.", "py4j."))
    plain = kind in {
        "ConnectionRefusedError",
        "ConnectionResetError",
        "EOFError",
        "BrokenPipeError",
        "SystemExit",
    }
    return not java and not plain and not any(sign in error for sign in _INFRASTRUCTURE)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
