"""Where tasks' checkpoints are kept: beyond their nodes, in the same kind of place as federated rounds."""

from __future__ import annotations

import re
from typing import NamedTuple

from deploy.objects.base import Objects

_NAME = re.compile(r"(\d{6,})-(\d{6,})\.tar")


class Checkpoint(NamedTuple):
    """A checkpoint that is kept; the greatest is the newest.

    Attributes:
        attempt: that made it.
        number: of it in that attempt, from 1.
    """

    attempt: int
    number: int

    @property
    def name(self) -> str:
        """Of its object, in the task's folder."""
        return f"{self.attempt:06d}-{self.number:06d}.tar"


class Checkpoints:
    """Those of one task: one object each, never overwritten. Every method may wait, and raises ObjectsError.

    Args:
        objects: of all jobs.
        job_id: whose.
        task: name of the task.
    """

    def __init__(self, objects: Objects, job_id: str, task: str) -> None:
        self._objects = objects
        self._task = f"{job_id}/{task}/"

    def newest(self) -> tuple[Checkpoint, bytes] | None:
        """The newest and its content; None if there is none."""
        for one in sorted(self._all(), reverse=True):
            content = self._objects.get(self._task + one.name)
            if content is not None:
                return one, content
        return None

    def put(self, one: Checkpoint, content: bytes) -> None:
        """Keep one, then let go of older ones."""
        self._objects.put(self._task + one.name, content)
        for other in self._all():
            if other < one:
                self._objects.delete(self._task + other.name)

    def _all(self) -> list[Checkpoint]:
        found = (_NAME.fullmatch(name.removeprefix(self._task)) for name in self._objects.names(self._task))
        return [Checkpoint(int(one[1]), int(one[2])) for one in found if one]


def forget(objects: Objects, job_id: str) -> None:
    """Let go of all checkpoints of a job. Raises ObjectsError."""
    for name in objects.names(f"{job_id}/"):
        objects.delete(name)
