"""What really is: instances as providers see them, nodes, and what runners say of their tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Protocol

import structlog

from spotweave.deploy.model.fields import MOST_COUNT, MOST_SECONDS
from spotweave.deploy.model.instances import InstanceReport, InstanceState, Offer
from spotweave.deploy.model.jobs import Flower, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.providers.base import PartialError, Provider, ProviderError
from spotweave.deploy.runners.base import Runner, RunnerError
from spotweave.deploy.scheduler.retries import Quarantine, attempt_id, end
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.errors import UNUSABLE
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import IntentKind
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task

# What runners report of attempts, within bounds: processes of jobs are behind it, and may say anything.

_MOST_DETAILS = 50
_LONGEST_NAME = 100
_LONGEST_TEXT = 2_000


def bounded(report: TaskReport, assignment: Assignment, now_s: float) -> TaskReport:
    """A report as it may be kept and computed with.

    Raises ValueError if it is about something else, or holds what is no value of its kind.
    """
    if report.key != assignment.key or report.attempt != assignment.attempt:
        raise ValueError(f"a report about {report.key} {report.attempt} answers for {assignment.attempt_id}")
    if not isinstance(report.phase, Phase):
        raise ValueError(f"a report of {assignment.attempt_id} says the phase {report.phase!r:.100}")
    return replace(
        report,
        progress=_share(report.progress),
        saved=_share(report.saved),
        execution_saved=_share(report.execution_saved),
        executions_done=_count(report.executions_done),
        misses=_count(report.misses),
        last_execution_s=_seconds(report.last_execution_s),
        delivered=bool(report.delivered),
        execution_since_s=_moment(report.execution_since_s, now_s),
        next_due_s=_moment(report.next_due_s, now_s),
        message=str(report.message)[:_LONGEST_TEXT],
        saved_region=str(report.saved_region)[:_LONGEST_NAME],
        details={
            str(name)[:_LONGEST_NAME]: str(value)[:_LONGEST_TEXT]
            for name, value in islice(report.details.items(), _MOST_DETAILS)
        },
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, float(value))) if math.isfinite(value) else 0.0


def _count(value: int) -> int:
    return min(MOST_COUNT, max(0, int(value)))


def _seconds(value: float | None) -> float | None:
    if value is None or not 0 <= value < math.inf:
        return None
    return min(float(value), MOST_SECONDS)


def _moment(value: float | None, now_s: float) -> float | None:
    return None if value is None or not abs(value - now_s) <= MOST_SECONDS else float(value)


log = structlog.get_logger("scheduler")
_END_AGAIN_S = 60.0


class Nodes(Protocol):
    """Known state of the node agents on instances."""

    def answers(self, instance: Instance) -> bool:
        """Whether the node of a new instance answers and takes work."""

    def silent_s(self, instance_id: str, now_s: float) -> float:
        """For how long the node of an instance that runs has not answered; 0 while it does."""

    def lacks(self, instance_id: str) -> str:
        """What a node that has answered lacks of what its offer promised, in one line; "": nothing."""


_Stranger = tuple[InstanceReport, Instance | None]
"""What runs, and what the store has of it: an instance that has ended, or nothing."""


class Observer:
    """Brings the store up to date with the world.

    Attributes:
        offers: of all providers that answered, as they are now.
        told: what runners say of federated clients, those without a place among them.
        silent: kinds of jobs whose runner could not be asked in the latest look.
    """

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        runners: Mapping[str, Runner],
        nodes: Nodes,
        settings: SchedulerSettings,
        quarantine: Quarantine,
    ) -> None:
        self._store, self._providers, self._runners = store, providers, runners
        self._nodes, self._settings, self._quarantine = nodes, settings, quarantine
        self._missing_s: dict[str, dict[str, float]] = {}
        """By provider: since when instances are missing from what it reports, epoch seconds."""
        self._ending_s: dict[str, dict[str, float]] = {}
        """By provider: since when it reports instances as running that it was told to end, epoch seconds."""
        self._orphans: dict[str, set[str]] = {}
        """By provider: what it reported in the latest look that should not be there."""
        self.offers: list[Offer] = []
        self.told: Mapping[TaskKey, TaskReport] = {}
        self.silent: set[str] = set()

    @property
    def looks(self) -> Sequence[Callable[[float], None]]:
        """One look at everything; a part that fails leaves the others."""
        return (self._look_at_offers, self._look_at_instances, self._look_at_nodes, self._look_at_tasks)

    def _look_at_offers(self, now_s: float) -> None:
        found: list[Offer] = []
        for name, provider in self._providers.items():
            with _asking(name, "offers unknown"):
                found += provider.offers()
        self.offers = found
        with self._store.transaction():
            self._store.prices.record(found, now_s)

    def _look_at_instances(self, now_s: float) -> None:
        for name, provider in self._providers.items():
            with _asking(name, "instances unknown"):
                silent: Collection[str] = ()
                try:
                    reports = provider.describe(self._store.deployment_id)
                except PartialError as error:
                    log.warning("some instances unknown", provider=name, error=str(error))
                    reports, silent = error.reports, error.silent.keys()
                with self._store.transaction():
                    strangers, missing = self._compare(name, reports, now_s)
                self._settle_strangers(name, provider, strangers, now_s)
                # Of instances in regions that did not answer nothing is known now.
                missing = [one for one in missing if one.offer.region not in silent]
                self._end_vanished(name, provider, missing, now_s)

    def _compare(
        self, name: str, reports: Sequence[InstanceReport], now_s: float
    ) -> tuple[dict[str, _Stranger], list[Instance]]:
        """Bring a provider's instances up to date.

        Returns what runs and should not be there, by the provider's names; what is known and not reported.
        """
        known = {instance.client_token: instance for instance in self._store.instances.live(name)}
        # The answer to a launch may be lost, and what it launched be given up before it is shown; and what
        # was not shown for long may run all the same, or have run on.
        known |= self._store.instances.gone({one.client_token for one in reports} - known.keys())
        pending = self._store.intents.pending_targets(IntentKind.LAUNCH, IntentKind.TERMINATE)
        seen: set[str] = set()
        ending_s: dict[str, float] = {}
        strangers: dict[str, _Stranger] = {}
        for report in reports:
            before = known.get(report.client_token)
            over = before is None or (not before.state.live and before.launched_s is not None)
            if before is not None:
                seen.add(before.instance_id)
            if over and report.state not in (InstanceState.TERMINATED, InstanceState.STOPPING):
                strangers[report.instance_id] = (report, before)
                continue
            if before is None:
                continue
            after = self._store.instances.told(before, report, now_s)
            if before.state is InstanceState.STOPPING and report.state is InstanceState.RUNNING:
                since_s = self._ending_s.get(name, {}).get(before.instance_id, now_s)
                ending_s[before.instance_id] = since_s
                if now_s - since_s >= _END_AGAIN_S:
                    # Its provider took the order and did nothing: said once more, it costs nothing.
                    end(self._store, before, now_s)
            if before.state is InstanceState.TERMINATED and after.state.live:
                self._event("instance.found", after, now_s, {})
            if after.notice_s is not None and before.notice_s is None:
                self._event("instance.noticed", after, now_s, {"ends_s": after.notice_s})
            if len(after.stops) > len(before.stops) and after.stops[-1].started_s is None:
                self._event("instance.stopped", after, now_s, {"stopped_s": after.stops[-1].stopped_s})
            if after.state is InstanceState.TERMINATED and not over:
                self._event("instance.ended", after, now_s, {"by_provider": after.by_provider})
        self._ending_s[name] = ending_s
        missing = [
            one
            for one in known.values()
            # Without a name of its provider's it has not been launched yet, as far as we know.
            if one.instance_id not in seen and one.provider_id is not None and one.instance_id not in pending
        ]
        return strangers, missing

    def _end_vanished(self, name: str, provider: Provider, missing: Sequence[Instance], now_s: float) -> None:
        """Book as gone what its provider has not reported for long, and whose node does not answer.

        An answer may leave things out: it is ended once more first, which costs nothing if it is gone.
        """
        before = self._missing_s.get(name, {})
        since_s = {one.instance_id: before.get(one.instance_id, now_s) for one in missing}
        self._missing_s[name] = since_s
        for one in missing:
            missing_s = now_s - since_s[one.instance_id]
            if missing_s < self._settings.vanished_after_s or self._is_there(one, now_s):
                continue
            provider.terminate([str(one.provider_id)])
            with self._store.transaction():
                # Nobody says that it was interrupted: then its first hour may be free.
                self._store.instances.ended(one.instance_id, now_s)
                self._event("instance.vanished", one, now_s, {"missing_s": missing_s})

    def _is_there(self, instance: Instance, now_s: float) -> bool:
        if instance.state is InstanceState.RUNNING:
            return self._nodes.silent_s(instance.instance_id, now_s) == 0.0
        return bool(instance.port) and self._nodes.answers(instance)

    def _settle_strangers(
        self, name: str, provider: Provider, strangers: Mapping[str, _Stranger], now_s: float
    ) -> None:
        """What runs and should not, once it is seen twice in a row, is taken up, or ended.

        What the store has is taken up: it is billed for all of its time, and ended as what no job needs.
        """
        before = self._orphans.get(name, set())
        # What is being written now may simply not be seen yet, and an answer may be an old one.
        self._orphans[name] = set(strangers)
        for provider_id in sorted(strangers.keys() & before):
            report, known = strangers[provider_id]
            if known is not None:
                with self._store.transaction():
                    after = self._store.instances.told(known, report, now_s, found=True)
                    self._event("instance.found", after, now_s, {})
                continue
            try:
                provider.terminate([provider_id])
            except ProviderError as error:
                log.warning("orphan not ended", provider=name, instance=provider_id, error=str(error))
                continue
            with self._store.transaction():
                data = {"provider": name, "provider_id": provider_id}
                self._store.events.add("instance.orphan_ended", now_s, data)

    def _look_at_nodes(self, now_s: float) -> None:
        for instance in self._store.instances.in_states([InstanceState.LAUNCHING]):
            if instance.port and self._nodes.answers(instance):
                with self._store.transaction():
                    if self._store.instances.ready(instance.instance_id, now_s):
                        self._event("instance.ready", instance, now_s, {})

    def _look_at_tasks(self, now_s: float) -> None:
        by_kind, released = self._attempts(now_s)
        self.silent = set()
        reports = [
            report for kind, assignments in by_kind.items() for report in self._ask(kind, assignments, now_s)
        ]
        homeless = {task.key for task in released}
        federated = {one.key for one in by_kind.get("flower", ())}
        self.told = {report.key: report for report in reports if report.key in federated}
        for report in self.told.values():
            if report.key in homeless and report.phase is Phase.SUCCEEDED:
                with self._quarantine.guard(report.key.job_id, "keeping a report"), self._store.transaction():
                    self._store.tasks.succeed(report.key)
                    self._store.events.add("task.succeeded", now_s, {}, key=report.key)
        rest = [report for report in reports if report.key not in homeless]
        try:
            self._keep(rest, now_s)
        except UNUSABLE:
            raise
        except Exception:
            log.exception("reports could not be kept together; each is kept on its own")
            for report in rest:
                with self._quarantine.guard(report.key.job_id, "keeping a report"):
                    self._keep([report], now_s)

    def _ask(self, kind: str, assignments: Sequence[Assignment], now_s: float) -> Sequence[TaskReport]:
        """What a runner says of attempts; where that raises, of each on its own."""
        try:
            told = self._runners[kind].reports(assignments)
        except RunnerError as error:
            log.warning("tasks unknown", kind=kind, error=str(error))
            self.silent.add(kind)
            return ()
        except UNUSABLE:
            raise
        except Exception as error:
            if len(assignments) > 1:
                log.exception("tasks unknown; each is asked for on its own", kind=kind)
                return [report for one in assignments for report in self._ask(kind, [one], now_s)]
            self._quarantine.note(assignments[0].key.job_id, "asking for a report", error)
            return ()
        found = []
        for assignment, report in zip(assignments, told, strict=False):
            with self._quarantine.guard(assignment.key.job_id, "reading a report"):
                found.append(bounded(report, assignment, now_s))
        return found

    def _keep(self, reports: Sequence[TaskReport], now_s: float) -> None:
        if not reports:
            return
        with self._store.transaction():
            for before, report in self._store.tasks.report_all(reports, now_s):
                if before.phase is not report.phase:
                    data: dict[str, Json] = {"attempt": report.attempt, "message": report.message}
                    self._store.events.add(f"task.{report.phase}", now_s, data, key=report.key)

    def _attempts(self, now_s: float) -> tuple[Mapping[str, Sequence[Assignment]], Sequence[Task]]:
        """Attempts that runners were told of and that had not ended, by kind of job.

        Clients of federated trainings are asked for without nodes too, while they have no place: runners know
        how far the others are. They are returned again.
        """
        with self._store.snapshot():
            untold = self._store.intents.pending_targets(IntentKind.START)
            tasks = [
                task
                for task in self._store.tasks.placed()
                if task.phase is not None and not task.phase.ended and attempt_id(task) not in untold
            ]
            released = self._store.tasks.released()
            jobs = self._store.jobs.named({task.key.job_id for task in (*tasks, *released)})
            instances = self._store.instances.named({name for task in tasks for name in task.instances})
        released = [task for task in released if isinstance(jobs[task.key.job_id].spec.work, Flower)]
        by_kind: dict[str, list[Assignment]] = {}
        for task in (*tasks, *released):
            job = jobs[task.key.job_id]
            if self._quarantine.holds(job.job_id, now_s):
                continue
            with self._quarantine.guard(job.job_id, "reading a task"):
                by_kind.setdefault(job.spec.work.kind, []).append(assignment_of(job, task, instances))
        return by_kind, released

    def _event(self, kind: str, instance: Instance, now_s: float, data: dict[str, float | bool]) -> None:
        self._store.events.add(kind, now_s, data, key=instance.key, instance_id=instance.instance_id)


@contextmanager
def _asking(provider: str, unknown: str) -> Iterator[None]:
    """Whatever a provider fails with, the others are asked, and the pass goes on."""
    try:
        yield
    except ProviderError as error:
        log.warning(unknown, provider=provider, error=str(error))
    except UNUSABLE:
        raise
    except Exception:
        log.exception(unknown, provider=provider)


def assignment_of(job: Job, task: Task, instances: Mapping[str, Instance]) -> Assignment:
    """A task's latest attempt on these instances, as runners want it."""
    nodes = tuple(instances[name].node for name in task.instances)
    return Assignment(task.key, task.attempt, job.spec, nodes, job.workdir)
