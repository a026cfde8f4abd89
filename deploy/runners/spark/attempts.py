"""What the runner remembers of an attempt: enough to find and to end all of it after any restart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.model.tasks import Assignment, Node, Phase
from deploy.node.config import write_json
from deploy.runners.detached import Detached


class Attempt:
    """One attempt's folder below the runner's state.

    Files: attempt.json (what was asked for, with its nodes and their tokens: mode 0600), driver/ (see
    detached.py), has_run, verdict.json (how it ended, once that is decided; never changed afterwards).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver = Detached(folder / "driver")

    @property
    def known(self) -> bool:
        """Whether it was ever asked for."""
        return (self.folder / "attempt.json").exists()

    @property
    def record(self) -> dict[str, Any]:
        """What was asked for."""
        found: dict[str, Any] = json.loads((self.folder / "attempt.json").read_bytes())
        return found

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Where it was to run."""
        return tuple(Node(**node) for node in self.record["nodes"])

    def remember(self, assignment: Assignment, ui_port: int) -> None:
        """Write down what is about to be started."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = {
            "attempt_id": assignment.attempt_id,
            "job_id": assignment.key.job_id,
            "task": assignment.key.task,
            "attempt": assignment.attempt,
            "ui_port": ui_port,
            "nodes": [asdict(node) for node in assignment.nodes],
        }
        write_json(self.folder / "attempt.json", record)

    @property
    def has_run(self) -> bool:
        """Whether it was ever seen to have executors."""
        return (self.folder / "has_run").exists()

    @has_run.setter
    def has_run(self, value: bool) -> None:
        if value:
            (self.folder / "has_run").touch(mode=0o600)

    @property
    def verdict(self) -> tuple[Phase, str] | None:
        """How it ended and why; None while that is open."""
        try:
            found = json.loads((self.folder / "verdict.json").read_bytes())
        except FileNotFoundError:
            return None
        return Phase(found["phase"]), str(found["message"])

    def decide(self, phase: Phase, message: str) -> tuple[Phase, str]:
        """Write down how it ended, unless that is decided already; what counts is returned."""
        if (earlier := self.verdict) is not None:
            return earlier
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(self.folder / "verdict.json", {"phase": phase.value, "message": message})
        return phase, message


class Attempts:
    """All attempts that are remembered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, assignment: Assignment) -> Attempt:
        """An attempt, known or not."""
        return Attempt(self.job_folder(assignment.key.job_id) / f"{assignment.key.task}.{assignment.attempt}")

    def of_job(self, job_id: str) -> Iterator[Attempt]:
        """All attempts of a job."""
        for folder in sorted(self.job_folder(job_id).glob("*")):
            if (attempt := Attempt(folder)).known:
                yield attempt

    def jobs(self) -> Iterator[str]:
        """All jobs that are remembered."""
        for folder in sorted(self._folder.glob("*")):
            yield folder.name

    def forget(self, job_id: str) -> None:
        """Remove all that is remembered of a job."""
        shutil.rmtree(self.job_folder(job_id), ignore_errors=True)

    def job_folder(self, job_id: str) -> Path:
        """Where all that is remembered of a job is."""
        return self._folder / job_id
