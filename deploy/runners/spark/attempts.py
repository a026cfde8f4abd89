"""What the runner remembers of an attempt: enough to find and to end all of it after any restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deploy.model.jobs import TaskKey
from deploy.model.tasks import Assignment, Node, Phase
from deploy.runners.detached import Detached
from deploy.security.untrusted import remove_tree
from deploy.statefile import StateFile
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

    @has_run.setter
    def has_run(self, value: bool) -> None:
        if value:
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
