"""The interface of all runners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from spotweave.deploy.model.jobs import JobSpec
from spotweave.deploy.model.tasks import Assignment, TaskReport


class RunnerError(Exception):
    """A runner's own service (master, SuperLink, node agent) cannot be used now; trying again may help."""


class StartingError(RunnerError):
    """A runner's own service is coming up; nothing has failed, ask again."""


class Printed(NamedTuple):
    """Part of what an attempt has printed."""

    content: bytes
    end: int  # offset of the byte after it


class Runner(Protocol):
    """Makes the tasks of some kinds of jobs run. All methods are safe to repeat and survive a restart.

    After a restart of the scheduler a new Runner finds what runs from its state folder, the services' own
    endpoints and the node agents, not from memory. A task never runs to completion twice: before an attempt
    starts, everything of the earlier attempts is made sure to be gone.
    """

    @property
    def kinds(self) -> tuple[str, ...]:
        """`work.kind` of the jobs it runs."""

    def check(self, spec: JobSpec, folder: str) -> None:
        """Refuse, before anything is rented, a job that cannot run.

        Raises ValueError: one line: what was given, what was expected, what to do.
        """

    def start(self) -> None:
        """Bring up the services that all jobs share (idempotent). Raises RunnerError, StartingError."""

    def ensure(self, assignment: Assignment) -> None:
        """Make this attempt run on these nodes; if it does already, do nothing.

        Raises RunnerError if it cannot, StartingError if that is not known yet.
        """

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """One report for each of these attempts, in their order; what cannot be asked now is LOST only when
        it is certain, else it keeps its latest phase.
        """

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """These nodes will end in this many seconds: move work and state off them, save what can be saved."""

    def stop(self, assignment: Assignment) -> None:
        """End this attempt and everything that it started, on nodes and elsewhere; then it is really gone."""

    def log(self, assignment: Assignment, offset: int, most_bytes: int) -> Printed:
        """Part of what an attempt has printed; it may have ended long ago.

        Args:
            assignment: the attempt; its nodes are those of the task that live now. Its task is one of the
                job's `work.logs`.
            offset: of the first byte; if negative, counted from the end.
            most_bytes: at most 1 MiB.

        Raises:
            RunnerError: if it cannot be read now or is not kept: one line.
        """

    def leave(self, assignment: Assignment) -> None:
        """This task, whose attempt is stopped, leaves its job for good: the others go on without it."""

    def forget(self, job_id: str) -> None:
        """The job is over: end what it still has (its server, its run), keep logs and results."""

    def shutdown(self) -> None:
        """End the shared services (for `spotweave serve --stop` and tests; not on a scheduler restart)."""
