"""Doing what was written down: each intent once it is due, idempotently, with back-off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog
from structlog.contextvars import bound_contextvars

from spotweave.deploy.billing import usd
from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest
from spotweave.deploy.model.tasks import Assignment, Phase
from spotweave.deploy.providers.base import CapacityError, Provider, ProviderError, QuotaError, RefusedError
from spotweave.deploy.runners.base import Runner, RunnerError, StartingError
from spotweave.deploy.scheduler.observer import assignment_of
from spotweave.deploy.scheduler.placing import kept_for_moves, move, of_start, regions_of
from spotweave.deploy.scheduler.retries import Retries, attempt_id, end, key_of, refuse, requeue
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.errors import UNUSABLE
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import Intent, IntentKind
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task

log = structlog.get_logger("scheduler")
MOST_SKEW_S = 60.0  # tolerated difference between a provider's clock and ours
_ENDS = (IntentKind.STOP, IntentKind.TERMINATE)
MAX_TRIES = 2
"""A start, or anything that raises what nothing should raise, is given up after this many tries."""


class Actions:
    """Does intents."""

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        runners: Mapping[str, Runner],
        settings: SchedulerSettings,
        retries: Retries,
    ) -> None:
        self._store, self._providers, self._runners = store, providers, runners
        self._settings, self._retries = settings, retries
        self._cooldowns = retries.cooldowns
        self._skewed: set[str] = set()
        self._listed: dict[str, Sequence[InstanceReport] | ProviderError] = {}
        """By provider: its instances as listed in this pass, or the error; forgotten at each launch."""
        self._handlers: dict[IntentKind, Callable[[Intent, float], None]] = {
            IntentKind.LAUNCH: self._launch,
            IntentKind.TERMINATE: self._terminate,
            IntentKind.START: self._start,
            IntentKind.STOP: self._stop,
            IntentKind.DRAIN: self._drain,
            IntentKind.MOVE: self._move,
        }

    def act(self, now_s: float) -> None:
        """Everything that is due; what fails waits longer each time."""
        self._listed.clear()
        # Starts wait for nodes, however many of them: they come last, so that nothing waits behind them.
        starts = (IntentKind.START,)
        others = tuple(kind for kind in IntentKind if kind not in starts)
        for intent in self._store.intents.due(now_s, kinds=others):
            self._try(intent, now_s)
        due = self._store.intents.due(now_s, kinds=starts)
        waiting = self._await_nodes(due, now_s)
        for intent in due:
            if intent.intent_id not in waiting:
                self._try(intent, now_s)

    def end_again(self, now_s: float) -> None:
        """Ends of instances that were refused before, before the calls of a look use up what is allowed."""
        self._listed.clear()
        for intent in self._store.intents.due(now_s, kinds=(IntentKind.TERMINATE,)):
            if intent.attempts:
                self._try(intent, now_s)

    def _try(self, intent: Intent, now_s: float) -> None:
        about = {name: intent.payload[name] for name in ("job_id", "task") if name in intent.payload}
        with bound_contextvars(
            **about, intent=intent.kind.value, target=intent.target, decision_id=intent.decision_id
        ):
            try:
                self._handlers[intent.kind](intent, now_s)
            except (ProviderError, RunnerError) as error:
                self._later(intent, str(error), now_s, known=True)
            except UNUSABLE:
                raise
            except Exception as error:
                # Whatever it was: one action that fails each time must not hold up all others.
                log.exception("an action failed")
                self._later(intent, f"{type(error).__name__}: {error}".splitlines()[0], now_s, known=False)

    def _later(self, intent: Intent, error: str, now_s: float, *, known: bool) -> None:
        """Retry with back-off; give up what keeps failing.

        A launch that its provider cannot answer now is given up by time (see `_await_nodes`), and what ends
        something never is.
        """
        tries = intent.attempts + 1
        endless = intent.kind in _ENDS or (known and intent.kind is not IntentKind.START)
        if tries >= MAX_TRIES and not endless:
            self._give_up(intent, error, now_s)
            return
        wait_s = self._settings.back_off(tries)
        if intent.kind in _ENDS:
            wait_s = min(wait_s, self._settings.end_back_off_most_s)
        log.warning("action failed, will retry", error=error, again_in_s=wait_s)
        with self._store.transaction():
            self._store.intents.retry(intent.intent_id, error, now_s + wait_s)

    def _give_up(self, intent: Intent, error: str, now_s: float) -> None:
        """Fail the intent for good, and the attempt that cannot go on without it."""
        log.warning("given up", error=error)
        with self._store.transaction():
            self._store.intents.failed(intent.intent_id, error, now_s)
            if intent.kind is IntentKind.LAUNCH:
                # Whether it had an effect, the intent to end it finds out. It says nothing of the offer: what
                # raises may be this job's doing, and others must not be kept from there.
                instance = self._store.instances.get(intent.target)
                end(self._store, instance, now_s, intent.decision_id)
                task = self._store.tasks.get(instance.key)
                if instance.instance_id in task.instances:
                    self._retries.failed(task, f"{instance.offer.offer_id}: {error}", now_s)
            elif intent.kind is IntentKind.START:
                task = self._store.tasks.get(key_of(intent))
                if task.attempt == intent.payload["attempt"] and task.phase is Phase.STARTING:
                    self._retries.failed(task, f"it could not be started: {error}", now_s)

    def _done(self, intent: Intent, now_s: float) -> None:
        with self._store.transaction():
            self._store.intents.done(intent.intent_id, now_s)

    # Instances.

    def _launch(self, intent: Intent, now_s: float) -> None:
        instance = self._store.instances.get(intent.target)
        task = self._store.tasks.get(instance.key)
        wanted = instance.instance_id in (*task.instances, *kept_for_moves(self._store))
        # A job may be cancelled while a pass goes on; only the next one takes its tasks off.
        wanted = wanted and self._store.jobs.get(instance.key.job_id).state.live
        if instance.state is not InstanceState.REQUESTED or not wanted:
            self._done(intent, now_s)
            return
        request = LaunchRequest(
            client_token=instance.client_token,
            offer_id=instance.offer.offer_id,
            deployment=self._store.deployment_id,
            job_id=instance.key.job_id,
            task=instance.key.task,
            node_token=instance.node_token,
        )
        provider = self._providers[instance.offer.provider]
        self._listed.pop(instance.offer.provider, None)
        try:
            report = provider.launch(request)
        except (CapacityError, QuotaError, RefusedError) as error:
            # An earlier try may have launched it without our hearing of that; what this pass made had none.
            earlier = None if intent.created_s == now_s else self._launched(instance)
            if earlier is None:
                self._refused(intent, instance, task, error, now_s)
                return
            report = earlier
        with self._store.transaction():
            self._compare_clocks(instance, report, now_s)
            self._store.instances.report(instance.instance_id, report, now_s)
            self._store.intents.done(intent.intent_id, now_s)
            data = {"offer": instance.offer.offer_id, "provider_id": report.instance_id}
            self._store.events.add(
                "instance.launched",
                now_s,
                data,
                key=instance.key,
                instance_id=instance.instance_id,
                decision_id=intent.decision_id,
            )

    def _compare_clocks(self, instance: Instance, report: InstanceReport, now_s: float) -> None:
        """Report once that this machine's clock and a provider's differ. Needs a transaction."""
        provider = instance.offer.provider
        off_s = min(max(report.launched_s, instance.requested_s), now_s) - report.launched_s
        if abs(off_s) <= MOST_SKEW_S or provider in self._skewed:
            return
        self._skewed.add(provider)
        said = f"this machine's clock is {off_s:+.0f} s off that of {provider}: synchronise it (NTP)"
        log.error(said)
        data: dict[str, Json] = {"provider": provider, "reason": said}
        self._store.events.add("clock.differs", now_s, data, key=instance.key)

    def _launched(self, instance: Instance) -> InstanceReport | None:
        """The provider's report of an instance; None if it was never launched.

        Instances are listed once per pass: one call for each would exhaust a low rate limit, and none of them
        would ever be ended.
        """
        name = instance.offer.provider
        if name not in self._listed:
            try:
                self._listed[name] = self._providers[name].describe(self._store.deployment_id)
            except ProviderError as error:
                self._listed[name] = error
        found = self._listed[name]
        if isinstance(found, ProviderError):
            raise found
        return next((one for one in found if one.client_token == instance.client_token), None)

    def _refused(
        self, intent: Intent, instance: Instance, task: Task, error: ProviderError, now_s: float
    ) -> None:
        """Handle a refusal: give the attempt or move up and back off from the offer."""
        offer_id = instance.offer.offer_id
        gang_is_up = any(
            one.launched_s is not None for one in self._store.instances.named(task.instances).values()
        )
        if isinstance(error, RefusedError) or gang_is_up:
            # Renting a part of a gang again and again would cost the minimum each time.
            self._cooldowns.refused(offer_id, now_s)
        else:
            self._cooldowns.no_capacity(offer_id, now_s)
        with self._store.transaction():
            self._store.intents.failed(intent.intent_id, str(error), now_s)
            self._store.instances.ended(instance.instance_id, now_s)
            refuse(self._store, instance, _why(error), str(error), now_s)
            if instance.instance_id not in task.instances:
                return
            if isinstance(error, RefusedError):
                self._retries.failed(task, f"{offer_id}: {error}", now_s)
            else:
                requeue(self._store, task, now_s, reason=f"{offer_id}: {error}")

    def _terminate(self, intent: Intent, now_s: float) -> None:
        instance = self._store.instances.get(intent.target)
        if instance.state is InstanceState.TERMINATED:
            self._done(intent, now_s)
            return
        provider = self._providers[instance.offer.provider]
        provider_id = instance.provider_id
        if provider_id is None:
            # Perhaps it was launched and we were killed before we knew.
            report = self._launched(instance)
            with self._store.transaction():
                if report is None:
                    self._store.instances.ended(instance.instance_id, now_s)
                    self._store.intents.done(intent.intent_id, now_s)
                    return
                # If the next call is refused, the retry needs no list. An end is left to the next look, which
                # also writes its event.
                if report.state is not InstanceState.TERMINATED:
                    self._store.instances.report(instance.instance_id, report, now_s)
            provider_id = report.instance_id
        provider.terminate([provider_id])
        with self._store.transaction():
            self._store.instances.stopping(instance.instance_id)
            self._store.intents.done(intent.intent_id, now_s)

    # Attempts.

    def _start(self, intent: Intent, now_s: float) -> None:
        key = key_of(intent)
        task = self._store.tasks.get(key)
        job = self._store.jobs.get(key.job_id)
        stale = task.attempt != intent.payload["attempt"] or task.phase is not Phase.STARTING
        if stale or not job.state.live:
            self._done(intent, now_s)
            return
        instances = self._store.instances.named(task.instances)
        try:
            self._runners[job.spec.work.kind].ensure(assignment_of(job, task, instances))
        except StartingError as error:
            # No try is spent: the intent stays due.
            log.info("a start waits for its runner", progress=str(error))
            return
        with self._store.transaction():
            self._store.intents.done(intent.intent_id, now_s)
            data: dict[str, Json] = {"attempt": task.attempt, "instances": list(task.instances)}
            place = instances[task.instances[0]]
            self._cooldowns.started(place.offer.offer_id)
            charges = of_start(
                job.spec,
                task,
                place.offer.region,
                self._settings.transfers,
                regions_of(self._store, job.job_id, job.spec),
            )
            if charges:
                self._store.egress.add(key, task.attempt, place, charges, now_s)
                data["egress_usd"] = float(usd(charges))
            self._store.events.add("task.started", now_s, data, key=key, decision_id=intent.decision_id)

    def _await_nodes(self, intents: Sequence[Intent], now_s: float) -> set[int]:
        """Starts whose nodes are not all ready; they wait for a limited time."""
        with self._store.snapshot():
            tasks = {attempt_id(task): task for task in self._store.tasks.placed()} if intents else {}
            starting = {one.intent_id: (one, tasks[one.target]) for one in intents if one.target in tasks}
            instances = self._store.instances.named(
                {name for _, task in starting.values() for name in task.instances}
            )
        waiting = set()
        for intent, task in starting.values():
            nodes = [instances[name] for name in task.instances]
            if task.phase is not Phase.STARTING or all(one.state is InstanceState.RUNNING for one in nodes):
                continue
            waiting.add(intent.intent_id)
            since_s = min((_launched_s(one, now_s) for one in nodes), default=now_s)
            waited_s = now_s - since_s
            if waited_s > self._settings.ready_within_s:
                self._give_up_start(intent, task, nodes, waited_s, now_s)
        return waiting

    def _give_up_start(
        self, intent: Intent, task: Task, nodes: Sequence[Instance], waited_s: float, now_s: float
    ) -> None:
        """Requeue a task whose nodes did not get ready in time.

        It counts as a failure of the task only if all of its instances were launched.
        """
        for offer_id in {one.offer.offer_id for one in nodes if one.state is not InstanceState.RUNNING}:
            self._cooldowns.refused(offer_id, now_s)
        never = {one.instance_id: one for one in nodes if one.launched_s is None}
        launches = [one for one in self._store.intents.pending(IntentKind.LAUNCH) if one.target in never]
        with self._store.transaction():
            if not never:
                reason = f"its nodes were not ready {waited_s:.0f} s after the launch"
                self._store.intents.failed(intent.intent_id, reason, now_s)
                self._retries.failed(task, reason, now_s)
                return
            error = next((one.error for one in launches if one.error), "its provider has not answered")
            reason = f"no instance after {waited_s:.0f} s of tries: {error}"
            self._store.intents.failed(intent.intent_id, reason, now_s)
            for one in never.values():
                refuse(self._store, one, "request", error, now_s)
            requeue(self._store, task, now_s, reason=reason)

    def _stop(self, intent: Intent, now_s: float) -> None:
        job = self._store.jobs.get(str(intent.payload["job_id"]))
        runner = self._runners[job.spec.work.kind]
        if intent.payload.get("forget"):
            runner.forget(job.job_id)
        elif intent.payload.get("leave"):
            runner.leave(self._then(intent))
        else:
            runner.stop(self._then(intent))
        self._done(intent, now_s)

    def _drain(self, intent: Intent, now_s: float) -> None:
        assignment = self._then(intent)
        within_s = max(0.0, float(intent.payload["ends_s"]) - now_s)
        task = self._store.tasks.get(assignment.key)
        if within_s > 0 and task.attempt == assignment.attempt:
            runner = self._runners[assignment.spec.work.kind]
            runner.drain(assignment, list(intent.payload["instances"]), within_s)
        self._done(intent, now_s)

    def _move(self, intent: Intent, now_s: float) -> None:
        move(self._store, intent, now_s, self._settings.ready_within_s)

    def _then(self, intent: Intent) -> Assignment:
        """The attempt that an intent is about, with the instances that it had then."""
        key = key_of(intent)
        job = self._store.jobs.get(key.job_id)
        task = self._store.tasks.get(key)
        names = tuple(str(name) for name in intent.payload["instances"])
        if task.attempt == intent.payload["attempt"] and task.instances:
            names = task.instances
        then = replace(task, attempt=int(intent.payload["attempt"]), instances=names)
        return assignment_of(job, then, self._store.instances.named(names))


def _launched_s(instance: Instance, now_s: float) -> float:
    """Launch time; the request time if not launched yet, or if the provider's clock disagrees with ours."""
    launched_s = instance.launched_s
    between = launched_s is not None and instance.requested_s <= launched_s <= now_s
    return launched_s if launched_s is not None and between else instance.requested_s


def _why(error: ProviderError) -> str:
    if isinstance(error, CapacityError):
        return "capacity"
    return "quota" if isinstance(error, QuotaError) else "request"
