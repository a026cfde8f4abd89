"""A job's checkpoints away from this machine: one object for each round, named by the run that made it.

A run that resumes from an older round makes the later ones anew, with other weights. The run is in the name,
so that nothing ever has to be overwritten: `JOB/run-000002/round-000007.npz`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deploy.fl import checkpoints
from deploy.objects.base import Objects

_NAME = re.compile(r"run-(\d{6,})/round-(\d{6,})\.npz")
_KEEP = 2


@dataclass(frozen=True, order=True)
class Kept:
    """A round that is kept; the greatest is the newest.

    Attributes:
        round: how many rounds its weights come from.
        run: the run that made it.
    """

    round: int
    run: int

    @property
    def name(self) -> str:
        """Of its object, in the job's folder."""
        return f"run-{self.run:06d}/round-{self.round:06d}.npz"


class KeptRounds:
    """Those of one job. Every method may wait, and raises ObjectsError.

    Args:
        objects: of all jobs.
        job_id: whose.
    """

    def __init__(self, objects: Objects, job_id: str) -> None:
        self._objects = objects
        self._job = f"{job_id}/"

    @property
    def uri(self) -> str:
        """Where they are, for people."""
        return f"{self._objects.uri}/{self._job}".rstrip("/")

    def all(self) -> list[Kept]:
        """The newest first; broken ones are among them."""
        found = (_NAME.fullmatch(name.removeprefix(self._job)) for name in self._objects.names(self._job))
        return sorted((Kept(int(one[2]), int(one[1])) for one in found if one), reverse=True)

    def newest(self, among: list[Kept], after: int) -> tuple[Kept, bytes] | None:
        """The newest whole one of a later round, and its content as it was encoded; None if there is none."""
        for one in among:
            if one.round <= after:
                return None
            content = self._objects.get(self._job + one.name)
            if content is not None and checkpoints.is_whole(content):
                return one, content
        return None

    def put(self, one: Kept, content: bytes, *, last: bool) -> None:
        """Keep one and let go of older ones: of the last two rounds all stay, after the last only that.

        Raises:
            ConflictError: if this run made this round before, with other weights.
        """
        self._objects.put(self._job + one.name, content)
        # What is newer is not ours to judge: it is broken, or made by another scheduler.
        older = [other for other in self.all() if other < one]
        latest = sorted({other.round for other in (one, *older)})[-_KEEP:]
        for other in older:
            if last or other.round not in latest:
                self._objects.delete(self._job + other.name)
