"""The runner of bags: each task is one process of ours on one node, which runs the user's command.

Nothing of a job runs on the scheduler's machine. What talks to nodes does so in threads, so that a node that
does not answer holds up its own task only. Records in the state folder, and the node agents, tell a new
runner what an earlier one had started.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from spotweave.deploy.model.jobs import JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.objects.location import FolderObjects, Objects, ObjectsError
from spotweave.deploy.runners.bag.task import BagSettings, Task, bag, forget, process_id
from spotweave.deploy.runners.base import Printed, RunnerError
from spotweave.deploy.runners.detached import require_startable
from spotweave.deploy.runners.jobfolder import kept_log, log_name
from spotweave.deploy.runners.workers import (
    AsyncRunner,
    Work,
    WorkerPool,
    one_line,
    printed_on_node,
    wait_for,
)
from spotweave.deploy.security.untrusted import remove_tree

# Bags that can never run, refused before anything is rented.

_OWN = "SPOTWEAVE_"


def check(spec: JobSpec) -> None:
    """Refuse a job that cannot run. Raises ValueError: one line."""
    work = bag(spec)
    for task in work.tasks:
        require_startable({}, (*task.command, *(work.checkpoint or ())), spec.env, {})
    if spec.resources.instances != 1:
        raise ValueError(
            f"resources.instances is {spec.resources.instances}: each task of a bag runs on one (1)"
        )
    for key in spec.env:
        if key.startswith(_OWN):
            raise ValueError(f"env has {key!r}: names that begin so are set by spotweave: leave it out")
    interval_s = spec.profile.checkpoint_interval_s
    if interval_s > 0 and work.checkpoint is None:
        raise ValueError(
            f"profile.checkpoint_interval_s is {interval_s:g}, and work.checkpoint names no command: give "
            "one, or leave the interval out"
        )


_log = logging.getLogger(__name__)
_THREADS = 32


class BagRunner(AsyncRunner):
    """Implements `deploy.runners.base.Runner`; may be used from several threads."""

    kinds: tuple[str, ...] = ("bag",)

    def __init__(self, settings: BagSettings) -> None:
        super().__init__("bag-acts", _THREADS, settings.state.resolve() / "jobs")
        self._settings = settings
        self._objects: Objects = settings.checkpoints or FolderObjects(settings.state / "checkpoints")
        self._latest: dict[str, TaskReport] = {}
        self._looks = WorkerPool("bag-looks", _THREADS)

    def check(self, spec: JobSpec, folder: str) -> None:
        """See Runner."""
        check(spec)

    def ensure(self, assignment: Assignment) -> None:
        """See Runner. What is not done in a moment goes on, and `reports` tells how it ends."""
        if len(assignment.nodes) != 1:
            raise RunnerError(
                f"{assignment.attempt_id}: {len(assignment.nodes)} nodes, a task of a bag has one"
            )
        begin = self._of(assignment.key, lambda task: task.begin(assignment))
        self._done(f"{assignment.attempt_id}:begin", begin)

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """See Runner."""
        looks = [self._look(assignment) for assignment in assignments]
        wait_for(looks, self._settings.reports_within_s)
        return [self._report(one, look) for one, look in zip(assignments, looks, strict=True)]

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """See Runner. The process around the command takes a checkpoint; the next looks fetch it."""
        if assignment.nodes[0].instance_id in instance_ids:
            self._signal(assignment, process_id(assignment.key, assignment.attempt), "PWR")

    def log(self, assignment: Assignment, offset: int, most_bytes: int) -> Printed:
        """See Runner: from its node while that lives; after that its end, which was kept."""
        key, number = assignment.key, assignment.attempt
        found = printed_on_node(assignment, process_id(key, number), offset, most_bytes)
        return found or kept_log(assignment, log_name(key.task, number), offset, most_bytes)

    def stop(self, assignment: Assignment) -> None:
        """See Runner. Raises RunnerError while it still ends."""
        name = assignment.attempt_id
        stop = self._of(assignment.key, lambda task: task.stop(assignment))
        self._finish(f"{name}:stop", stop, f"{name} still ends")
        self._acts.collect(f"{name}:begin")
        self._looks.collect(name)
        self._latest.pop(name, None)

    def forget(self, job_id: str) -> None:
        """See Runner. Raises RunnerError while something of it still ends."""
        tasks = [file.stem for file in sorted((self._folder / job_id).glob("*.json"))]
        ends = {
            f"{job_id}.{task}:end": self._of(TaskKey(job_id, task), lambda task: task.end("the job is over"))
            for task in tasks
        }
        for name, end in ends.items():
            self._acts.begin(name, end)
        for name, end in ends.items():
            self._finish(name, end, f"{name} goes on")
        self._finish(f"{job_id}:forget", lambda: self._forget(job_id), f"job {job_id} is being forgotten")
        self._forget_locks(job_id)
        self._latest = {name: report for name, report in self._latest.items() if report.key.job_id != job_id}

    def shutdown(self) -> None:
        """See Runner. Nodes' processes end with their instances."""

    def _forget(self, job_id: str) -> None:
        try:
            forget(self._objects, job_id)
        except ObjectsError as error:
            # They may cost a little; the job's end must not wait for a store that is away for good.
            _log.warning("checkpoints of job %s stay: %s", job_id, error)
        self._remove(job_id, lambda name: remove_tree(self._folder / name), self._settings.sandbox)

    def _of(self, key: TaskKey, act: Callable[[Task], object]) -> Callable[[], object]:
        """The same for a task, one thing at a time for each task."""

        def do() -> object:
            with self._alone(*key):
                file = self._folder / key.job_id / f"{key.task}.json"
                return act(Task(file, key, self._settings, self._objects))

        return do

    def _look(self, assignment: Assignment) -> Work:
        name = f"{assignment.attempt_id}:begin"
        beginning = self._acts.pending(name)
        if beginning is not None and not beginning.future.done():
            return beginning
        if beginning is not None:
            self._acts.collect(name)
            if beginning.future.exception() is not None:
                return beginning
        look = self._of(assignment.key, lambda task: task.look(assignment))
        return self._looks.begin(assignment.attempt_id, look)

    def _report(self, assignment: Assignment, look: Work) -> TaskReport:
        name = assignment.attempt_id
        before = self._latest.get(name) or TaskReport(assignment.key, assignment.attempt, Phase.STARTING)
        if not look.future.done():
            return replace(before, message=f"its node has kept the runner waiting for {look.took_s:.0f} s")
        self._looks.collect(name)
        error = look.future.exception()
        if error is not None:
            if not isinstance(error, RunnerError):
                _log.warning("%s cannot be looked at", name, exc_info=error)
            return replace(before, phase=Phase.LOST, message=one_line(error))
        found = look.future.result()
        # A start that has ended well since tells nothing of the attempt: the next look does.
        report = found if isinstance(found, TaskReport) else before
        self._latest[name] = report
        return report
