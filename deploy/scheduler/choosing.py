"""Decisions: the policy's choice for every task that waits, the net under it, and what is written down."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploy.model.instances import Offer
from deploy.model.jobs import JobState, TaskKey
from deploy.model.tasks import Phase
from deploy.scheduler import decider as choices
from deploy.scheduler.decider import Decider
from deploy.scheduler.estimates import need_of
from deploy.scheduler.giving_up import attempt_id, requeue
from deploy.scheduler.needs import Need
from deploy.scheduler.occupancy import Occupancy
from deploy.scheduler.picture import snapshot_of
from deploy.scheduler.safety import catch
from deploy.scheduler.settings import SchedulerSettings
from deploy.store.decisions import Candidate, Decision, Mode
from deploy.store.instances import Instance
from deploy.store.intents import IntentKind
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task
from deploy.store.values import Json

OTHER_CANDIDATES = 12
"""So many candidates beside the chosen one are written down with each decision."""


@dataclass
class Policies:
    """Who decides.

    Attributes:
        market: for Spark jobs.
        rounds: for federated tasks.
        mode: ACT, or DRY_RUN, which decides and does nothing.
    """

    market: Decider
    rounds: Decider
    mode: Mode = Mode.ACT


class Chooser:
    """Takes the decisions of a pass."""

    def __init__(self, store: Store, policies: Policies, settings: SchedulerSettings) -> None:
        self._store = store
        self._policies = policies
        self._settings = settings
        self._occupancy = Occupancy()
        self._ask_s: dict[TaskKey, float] = {}
        self._cooling: dict[str, float] = {}
        self._waits: set[TaskKey] = set()
        """Tasks whose latest decision was to wait: the same again is not written down."""

    def cool_down(self, offer_id: str, until_s: float) -> None:
        """Leave an offer alone for a while."""
        self._cooling[offer_id] = until_s

    def choose(self, offers: Sequence[Offer], now_s: float) -> None:
        """Decide about every task that waits and is due, until nothing changes."""
        held = self._store.instances.live()
        used = Counter(instance.offer.offer_id for instance in held)
        self._occupancy.sample(now_s, used)
        shown = [self._as_it_is(offer, now_s) for offer in offers]
        needs = self._needs(held, now_s)
        for federated in (False, True):
            waiting = [need for need in needs if (need.kind == "federated") == federated]
            decider = self._policies.rounds if federated else self._policies.market
            self._decide_all(decider, waiting, shown, used, now_s)

    def _as_it_is(self, offer: Offer, now_s: float) -> Offer:
        """An offer that refused lately is not shown as available."""
        until_s = self._cooling.get(offer.offer_id, -math.inf)
        if not offer.available or until_s <= now_s:
            return offer
        reason = f"it had no capacity; left alone for {until_s - now_s:.0f} s more"
        return _without(offer, reason)

    def _needs(self, held: Sequence[Instance], now_s: float) -> list[Need]:
        jobs = {job.job_id: job for job in self._store.jobs.live()}
        by_task: dict[TaskKey, list[Instance]] = {}
        for instance in held:
            by_task.setdefault(instance.key, []).append(instance)
        needs = []
        for task in self._store.tasks.live():
            if task.not_before_s > now_s or self._ask_s.get(task.key, -math.inf) > now_s:
                continue
            job = jobs[task.key.job_id]
            mine = [one for one in by_task.get(task.key, []) if one.instance_id in task.instances]
            if not (
                task.phase is None or task.phase is Phase.WAITING or self._may_be_caught(job, task, mine)
            ):
                continue
            peers = sum(
                one.offer.price_usd_hour
                for key, ones in by_task.items()
                if key.job_id == task.key.job_id and key != task.key
                for one in ones
            )
            needs.append(need_of(job, task, mine, now_s, task.losses, peers))
        return needs

    def _may_be_caught(self, job: Job, task: Task, held: Sequence[Instance]) -> bool:
        """Whether a task that runs is the net's business: it has a deadline and sits on spot capacity."""
        on_spot = any(instance.offer.market == "spot" for instance in held)
        deadline = getattr(job.spec.work, "deadline_s", None) is not None
        return on_spot and deadline and task.phase in (Phase.STARTING, Phase.RUNNING)

    def _decide_all(
        self,
        decider: Decider,
        needs: list[Need],
        offers: Sequence[Offer],
        used: Counter[str],
        now_s: float,
    ) -> None:
        # What runs is only ever moved by the net.
        for need in [need for need in needs if need.running]:
            needs.remove(need)
            self._catch_running(need, offers, used, now_s)
        for _ in range(self._settings.decisions_per_pass):
            if not needs or not offers:
                return
            started = time.perf_counter()
            snapshot = snapshot_of(offers, needs[: decider.window], used, self._occupancy)
            decision = decider.decide(snapshot, needs[: decider.window], offers)
            assert decision is not None
            need, chosen = decision.need, decision.offer_id
            verdict = catch(need, chosen, offers, _free(offers, used), self._settings.margin)
            if verdict.offer_id is not None:
                chosen = verdict.offer_id
            latency_s = time.perf_counter() - started
            needs.remove(need)
            self._write(decider, decision, chosen, verdict.reason, latency_s, offers, used, now_s)

    def _catch_running(self, need: Need, offers: Sequence[Offer], used: Counter[str], now_s: float) -> None:
        verdict = catch(need, None, offers, _free(offers, used), self._settings.margin)
        if verdict.offer_id is None or self._policies.mode is Mode.DRY_RUN:
            return
        with self._store.transaction():
            task = self._store.tasks.get(need.key)
            requeue(self._store, task, now_s, lost=False, reason=verdict.reason)
            self._place(need, _named(offers, verdict.offer_id), None, now_s)
            used[verdict.offer_id] += need.resources.instances
            data = {"offer": verdict.offer_id, "reason": verdict.reason}
            self._store.events.add("task.caught", now_s, data, key=need.key)

    def _write(
        self,
        decider: Decider,
        decision: choices.Decision,
        chosen: str | None,
        overruled: str,
        latency_s: float,
        offers: Sequence[Offer],
        used: Counter[str],
        now_s: float,
    ) -> None:
        need = decision.need
        if chosen is None and need.here is None:
            if need.key in self._waits:
                self._ask_s[need.key] = now_s + self._ask_again_s(need)
                return
            self._waits.add(need.key)
        else:
            self._waits.discard(need.key)
        with self._store.transaction():
            record = self._store.decisions.add(
                Decision(
                    time_s=now_s,
                    policy=decider.policy.name,
                    mode=self._policies.mode,
                    key=need.key,
                    candidates=_candidates(decision, chosen, overruled),
                    chosen=chosen,
                    latency_s=latency_s,
                )
            )
            number = record.decision_id
            data = {"offer": chosen, "policy": decider.policy.name, "overruled": overruled}
            self._store.events.add("task.decided", now_s, data, key=need.key, decision_id=number)
            if self._policies.mode is Mode.DRY_RUN:
                self._ask_s[need.key] = now_s + self._settings.ask_again_s
                return
            self._do(need, chosen, number, offers, used, now_s)

    def _do(
        self,
        need: Need,
        chosen: str | None,
        number: int,
        offers: Sequence[Offer],
        used: Counter[str],
        now_s: float,
    ) -> None:
        """What a choice means: stay, wait, release, or go."""
        self._ask_s[need.key] = now_s + self._ask_again_s(need)
        task = self._store.tasks.get(need.key)
        if chosen is not None and chosen == need.here:
            return
        if task.phase is Phase.WAITING:
            requeue(self._store, task, now_s, lost=False, reason="released while it waits for others")
        if chosen is not None:
            self._place(need, _named(offers, chosen), number, now_s)
            used[chosen] += need.resources.instances

    def _ask_again_s(self, need: Need) -> float:
        if need.kind != "federated":
            return self._settings.ask_again_s
        # Half of what is left, so that a late start is found in time (see `spotweave/Federated-v0`).
        return min(self._settings.ask_again_s, max(5.0, need.round.round_left_s / 2))

    def _place(self, need: Need, offer: Offer, decision_id: int | None, now_s: float) -> None:
        """Write down the instances and what is to be done with them. Needs a transaction."""
        names = [f"i-{secrets.token_hex(8)}" for _ in range(need.resources.instances)]
        for name in names:
            self._store.instances.request(
                name,
                offer,
                need.key,
                client_token=f"{self._store.deployment_id}-{name}",
                node_token=secrets.token_urlsafe(32),
                now_s=now_s,
            )
            self._store.intents.add(IntentKind.LAUNCH, name, {}, now_s, decision_id=decision_id)
        self._store.tasks.begin(need.key, names, now_s)
        self._store.jobs.set_state(need.key.job_id, JobState.RUNNING, now_s)
        task = self._store.tasks.get(need.key)
        payload: dict[str, Json] = {"job_id": need.key.job_id, "task": need.key.task, "attempt": task.attempt}
        self._store.intents.add(IntentKind.START, attempt_id(task), payload, now_s, decision_id=decision_id)


def _free(offers: Sequence[Offer], used: Mapping[str, int]) -> dict[str, int]:
    return {offer.offer_id: offer.quota - used.get(offer.offer_id, 0) for offer in offers}


def _named(offers: Sequence[Offer], offer_id: str) -> Offer:
    return next(offer for offer in offers if offer.offer_id == offer_id)


def _without(offer: Offer, reason: str) -> Offer:
    return replace(offer, available=False, reason=reason)


def _candidates(decision: choices.Decision, chosen: str | None, overruled: str) -> tuple[Candidate, ...]:
    """The first ones of the policy's ranking, the chosen one among them."""
    kept = [
        item for k, item in enumerate(decision.candidates) if k <= OTHER_CANDIDATES or item.offer_id == chosen
    ]
    return tuple(
        Candidate(
            offer_id=item.offer_id,
            values={name: value for name, value in item.values.items() if math.isfinite(value)},
            price_usd_hour=None if item.offer_id is None else item.price_usd_hour,
            available=item.valid,
            reason=overruled if overruled and item.offer_id == chosen else item.reason,
        )
        for item in kept
    )
