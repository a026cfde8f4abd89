"""What really is: instances as providers see them, nodes, and what runners say of their tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import structlog

from deploy.model.instances import InstanceReport, InstanceState, Offer
from deploy.model.tasks import Assignment, Node
from deploy.providers.base import Provider, ProviderError
from deploy.runners.base import Runner, RunnerError
from deploy.scheduler.settings import SchedulerSettings
from deploy.store.instances import Instance
from deploy.store.intents import IntentKind
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task
from deploy.store.values import Json

log = structlog.get_logger("scheduler")
Probe = Callable[[Instance], bool]


class Observer:
    """Brings the store up to date with the world.

    Attributes:
        offers: of all providers that answered, as they are now.
    """

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        runners: Mapping[str, Runner],
        probe: Probe,
        settings: SchedulerSettings,
    ) -> None:
        self._store = store
        self._providers = providers
        self._runners = runners
        self._probe = probe
        self._settings = settings
        self._missing: Counter[str] = Counter()
        self._orphans: Counter[str] = Counter()
        self.offers: list[Offer] = []

    def look(self, now_s: float) -> None:
        """One look at everything."""
        self._look_at_offers(now_s)
        self._look_at_instances(now_s)
        self._look_at_nodes(now_s)
        self._look_at_tasks(now_s)

    def _look_at_offers(self, now_s: float) -> None:
        found: list[Offer] = []
        for name, provider in self._providers.items():
            try:
                found += provider.offers()
            except ProviderError as error:
                log.warning("offers unknown", provider=name, error=str(error))
        self.offers = found
        with self._store.transaction():
            self._store.prices.record(found, now_s)

    def _look_at_instances(self, now_s: float) -> None:
        known = {instance.client_token: instance for instance in self._store.instances.live()}
        pending = {
            intent.target
            for intent in self._store.intents.pending()
            if intent.kind in (IntentKind.LAUNCH, IntentKind.TERMINATE)
        }
        for name, provider in self._providers.items():
            try:
                reports = provider.describe(self._store.deployment_id)
            except ProviderError as error:
                log.warning("instances unknown", provider=name, error=str(error))
                continue
            with self._store.transaction():
                self._compare(name, provider, reports, known, pending, now_s)

    def _compare(
        self,
        name: str,
        provider: Provider,
        reports: Sequence[InstanceReport],
        known: Mapping[str, Instance],
        pending: set[str],
        now_s: float,
    ) -> None:
        seen: set[str] = set()
        for report in reports:
            instance = known.get(report.client_token)
            if instance is None:
                self._unknown(name, provider, report, now_s)
                continue
            seen.add(instance.instance_id)
            self._missing.pop(instance.instance_id, None)
            before = instance
            after = self._store.instances.report(instance.instance_id, report, now_s)
            if after.notice_s is not None and before.notice_s is None:
                self._event("instance.noticed", after, now_s, {"ends_s": after.notice_s})
            if after.state is InstanceState.TERMINATED:
                self._event("instance.ended", after, now_s, {"by_provider": after.by_provider})
        for instance in known.values():
            if instance.offer.provider != name or instance.instance_id in seen:
                continue
            if instance.provider_id is None or instance.instance_id in pending:
                continue  # it has not been launched yet, as far as we know
            self._missing[instance.instance_id] += 1
            if self._missing[instance.instance_id] >= self._settings.vanished_passes:
                self._store.instances.ended(instance.instance_id, now_s, by_provider=True)
                self._event("instance.vanished", instance, now_s, {})

    def _unknown(self, name: str, provider: Provider, report: InstanceReport, now_s: float) -> None:
        """An instance with our tag that the store does not hold as live."""
        if report.state in (InstanceState.TERMINATED, InstanceState.STOPPING):
            self._orphans.pop(report.instance_id, None)
            return
        self._orphans[report.instance_id] += 1
        if self._orphans[report.instance_id] < 2:
            return  # what is being written now may simply not be seen yet
        try:
            provider.terminate([report.instance_id])
        except ProviderError as error:
            log.warning("orphan not ended", provider=name, instance=report.instance_id, error=str(error))
            return
        self._store.events.add(
            "instance.orphan_ended", now_s, {"provider": name, "provider_id": report.instance_id}
        )

    def _look_at_nodes(self, now_s: float) -> None:
        for instance in self._store.instances.live():
            if instance.state is not InstanceState.LAUNCHING or not instance.port:
                continue
            if self._probe(instance):
                with self._store.transaction():
                    if self._store.instances.ready(instance.instance_id, now_s):
                        self._event("instance.ready", instance, now_s, {})

    def _look_at_tasks(self, now_s: float) -> None:
        jobs = {job.job_id: job for job in self._store.jobs.live()}
        # Of an attempt that no runner was told of yet there is nothing to ask.
        untold = {
            intent.target for intent in self._store.intents.pending() if intent.kind is IntentKind.START
        }
        by_kind: dict[str, list[Assignment]] = {}
        for task in self._store.tasks.live():
            if task.phase is None or task.phase.ended:
                continue
            assignment = assignment_of(self._store, jobs[task.key.job_id], task)
            if assignment.attempt_id not in untold:
                by_kind.setdefault(assignment.spec.work.kind, []).append(assignment)
        for kind, assignments in by_kind.items():
            try:
                reports = self._runners[kind].reports(assignments)
            except RunnerError as error:
                log.warning("tasks unknown", kind=kind, error=str(error))
                continue
            with self._store.transaction():
                for assignment, report in zip(assignments, reports, strict=True):
                    before = self._store.tasks.get(assignment.key)
                    kept = self._store.tasks.report(report, now_s)
                    if kept and before.phase is not report.phase:
                        data: dict[str, Json] = {"attempt": report.attempt, "message": report.message}
                        self._store.events.add(f"task.{report.phase}", now_s, data, key=report.key)

    def _event(self, kind: str, instance: Instance, now_s: float, data: dict[str, float | bool]) -> None:
        self._store.events.add(kind, now_s, data, key=instance.key, instance_id=instance.instance_id)


def assignment_of(store: Store, job: Job, task: Task) -> Assignment:
    """A task's latest attempt, as runners want it."""
    nodes = []
    for name in task.instances:
        instance = store.instances.get(name)
        nodes.append(
            Node(
                instance_id=instance.instance_id,
                address=instance.address,
                port=instance.port,
                token=instance.node_token,
                vcpus=instance.offer.vcpus,
                memory_gib=instance.offer.memory_gib,
                notice_s=instance.notice_s,
            )
        )
    return Assignment(task.key, task.attempt, job.spec, tuple(nodes), job.workdir)
