"""Decisions: the policy's choice for every task that is asked about, what may overrule it, what follows."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog
from structlog.contextvars import bound_contextvars

from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.scheduler.decider import GUIDE, Candidate, Decider, Decision, appraised_usd
from spotweave.deploy.scheduler.guards import Budgets, Guards, Outcome, leave, pays_nowhere, starts_nowhere
from spotweave.deploy.scheduler.needs import Need
from spotweave.deploy.scheduler.placing import cancel_move, intend_move, place
from spotweave.deploy.scheduler.plans import Plans
from spotweave.deploy.scheduler.retries import Cooldowns, Quarantine, end_job, requeue
from spotweave.deploy.scheduler.roster import Asked, Roster
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.scheduler.snapshot import Occupancy, View, observe
from spotweave.deploy.store.errors import UNUSABLE
from spotweave.deploy.store.intents import CandidateRecord, DecisionRecord, Mode
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task
from spotweave.envs.simulation.guards import likely_to_end, spare_s
from spotweave.envs.simulation.snapshot import FloatArray

log = structlog.get_logger("scheduler")
_TRANSACTION_S = 0.25


@dataclass
class Policies:
    """The deciding policies."""

    decides: Decider  # about all tasks
    # ACT; DRY_RUN, which decides and does nothing; SHADOW, in which another one is watched
    mode: Mode = Mode.ACT
    # SHADOW: asked about the same tasks, and only written down, where another policy would decide there
    watched: Decider | None = None
    plans: Plans | None = None  # in which regions steps of workflows run; None: `decides` alone says
    # of each policy that was named and cannot be used, why; a rule stands in for it
    unusable: tuple[str, ...] = ()


class Chooser:
    """Takes the decisions of a pass."""

    def __init__(
        self,
        store: Store,
        policies: Policies,
        settings: SchedulerSettings,
        budgets: Budgets,
        cooldowns: Cooldowns,
        quarantine: Quarantine,
    ) -> None:
        self._store, self._cooldowns, self._quarantine = store, cooldowns, quarantine
        self._budgets, self._policies, self._settings = budgets, policies, settings
        self._roster = Roster(store, settings, budgets, cooldowns, quarantine, policies.plans)
        self._records = Records(store, policies.mode)
        self._guards = Guards(settings.guards, store.prices)
        self._occupancy = Occupancy()
        self._holding: set[str] = set()
        """Jobs that have instances."""
        self.waiting = 0
        self.live: Counter[str] = Counter()

    def choose(self, offers: Sequence[Offer], now_s: float, told: Mapping[TaskKey, TaskReport]) -> None:
        """Decide about every task that is due, until nothing changes.

        `told` is what runners say of federated clients.
        """
        held = self._store.instances.live()
        self.live = Counter(instance.offer.market for instance in held)
        self._holding = {instance.key.job_id for instance in held}
        halted = Counter({offer.offer_id: offer.halted for offer in offers})
        used = Counter(instance.offer.offer_id for instance in held) - halted
        self._occupancy.sample(now_s)
        announced = {
            one.offer.offer_id
            for one in held
            if one.notice_s is not None and now_s < one.notice_s + self._settings.cool_down_s
        }
        shown = [self._as_it_is(offer, announced, now_s) for offer in offers]
        view = View(shown, used, halted, self._occupancy, self._roster.lateness.by_offer)
        roll = self._roster.call(offers, held, told, now_s)
        self.waiting = roll.waiting
        self._records.keep_only(roll.live)
        for one in roll.at_risk:
            with self._quarantine.guard(one.need.key.job_id, "watching over its deadline"):
                if self._catch(one, view, now_s):
                    roll.asked[:] = [other for other in roll.asked if other.need.key != one.need.key]
        self._decide_all(roll.asked, view, now_s)
        self._occupancy.hold(used)

    def _as_it_is(self, offer: Offer, announced: Collection[str], now_s: float) -> Offer:
        """What refused lately, takes an instance back or is beyond the budget is not shown as available."""
        if not offer.available:
            return offer
        if not self._budgets.shows(offer):
            reason = self._budgets.reason(offer)
        elif offer.offer_id in announced:
            # A replacement there would be the next to be ended.
            reason = "an instance there is about to be ended"
        elif (left_s := self._cooldowns.left_s(offer.offer_id, now_s)) > 0:
            reason = f"it refused; left alone for {left_s:.0f} s more"
        else:
            return offer
        return replace(offer, available=False, reason=reason)

    def _catch(self, one: Asked, view: View, now_s: float) -> bool:
        """Move a task that runs on spot capacity while its deadline can still be met elsewhere."""
        if self._policies.mode is Mode.DRY_RUN or not self._may_be_due(one, view):
            return False
        need = one.fallback
        row = observe(view.snapshot([need]), [need], 1, self._guards.rules).row(0)
        outcome = self._guards.bound(
            row, need, None, view.offers, left_usd=self._budgets.pay(need.key.job_id)
        )
        if outcome.offer_id is None or self._stays_on_spot(one.need, row.clusters, view):
            return False
        offer = view.offer(outcome.offer_id)
        with self._store.transaction():
            cancel_move(self._store, one.task, "the safety net moves it elsewhere", now_s)
            why: dict[str, Json] = {"reason": outcome.overruled}
            intend_move(self._store, one.task, one.need.resources.instances, offer, now_s, None, why)
            data = {"offer": offer.offer_id, **why}
            self._store.events.add("task.caught", now_s, data, key=one.need.key)
        self._budgets.take(offer, one.need)
        view.take(offer.offer_id, one.need.resources.instances)
        return True

    def _stays_on_spot(self, need: Need, clusters: FloatArray, view: View) -> bool:
        here = [k for k, offer in enumerate(view.offers) if offer.offer_id == need.here]
        return any(likely_to_end(clusters[k], need.left_here_s, self._guards.rules) for k in here)

    def _may_be_due(self, one: Asked, view: View) -> bool:
        """Whether the net may have to act: most tasks have hours to spare, and need no closer look."""
        allowed_s, rules = one.fallback.allowed_s, self._guards.rules
        longest_s = max((one.fallback.finish_s(offer) for offer in view.sure), default=0.0)
        return rules.safety_net == 1 and spare_s(allowed_s, longest_s, rules) <= 0

    def _decide_all(self, asked: list[Asked], view: View, now_s: float) -> None:
        asked = self._who_stay(asked, view, now_s)
        left = min(len(asked), self._settings.decisions_per_pass) if view.offers else 0
        while asked and left > 0:
            # One transaction for many: a wait for the disk after each would be most of a pass. But a request
            # that writes waits for it, so that it ends after a while.
            end_s = time.monotonic() + _TRANSACTION_S
            with self._store.transaction():
                while asked and left > 0 and time.monotonic() < end_s:
                    left -= 1
                    self._decide_one(asked, view, now_s)

    def _who_stay(self, asked: Sequence[Asked], view: View, now_s: float) -> list[Asked]:
        found = []
        for one in asked:
            with self._quarantine.guard(one.need.key.job_id, "looking at what it may still cost"):
                if not self._leaves(one, view, now_s):
                    found.append(one)
        return found

    def _decide_one(self, asked: list[Asked], view: View, now_s: float) -> None:
        """Decide about one of those that are asked about, who is taken off the list. Needs a transaction."""
        decider = self._policies.decides
        started = time.perf_counter()
        shown = [one.need for one in asked[: decider.window]]
        try:
            decision = decider.decide(view.snapshot(shown), shown, view.offers)
        except UNUSABLE:
            raise
        except Exception as error:
            if len(shown) > 1:
                # One of them spoils the picture for all: each is looked at on its own.
                log.exception("tasks could not be decided about together")
                asked[:] = self._who_can_be_shown(asked, view)
            else:
                self._quarantine.note(asked.pop(0).need.key.job_id, "deciding about a task", error)
            return
        one = asked.pop(next(k for k, one in enumerate(asked) if one.need is decision.need))
        key = one.need.key
        with (
            bound_contextvars(job_id=key.job_id, task=key.task),
            self._quarantine.guard(key.job_id, "following a decision"),
        ):
            if decision.lost:
                self._records.hopeless(key, decision.lost, now_s)
            outcome = self._outcome(one, decision, view, now_s)
            latency_s = time.perf_counter() - started
            beside = self._watch(one, outcome, view, now_s)
            self._roster.questions.again(key, now_s, self._ask_again_s(one.need, outcome.offer_id, view))
            # Most of those that wait were told so before.
            if one.task.phase is Phase.WAITING or not self._records.repeats(decision, outcome, beside):
                # What a task that raises had written is undone with it, and nothing else.
                with self._store.transaction():
                    number = self._records.decision(decision, outcome, beside, latency_s, now_s)
                    with bound_contextvars(decision_id=number):
                        self._do(one, outcome, number, view, now_s)
        if one.need.kind == "federated":
            self._roster.look_again(asked, key.job_id, decider.window, now_s)

    def _who_can_be_shown(self, asked: Sequence[Asked], view: View) -> list[Asked]:
        found = []
        for one in asked:
            with self._quarantine.guard(one.need.key.job_id, "deciding about a task"):
                self._policies.decides.decide(view.snapshot([one.need]), [one.need], view.offers)
                found.append(one)
        return found

    def _leaves(self, one: Asked, view: View, now_s: float) -> bool:
        """Whether nothing is left to be decided: a client has delivered all rounds, and gives its instance
        back; or a budget pays nothing further anywhere, and the client leaves, or the job has failed.
        """
        if self._policies.mode is Mode.DRY_RUN:
            return False
        job_id = one.need.key.job_id
        if one.need.kind == "federated" and one.need.executions_left == 0:
            if one.task.phase is Phase.WAITING:
                self._release(one.task, "it has delivered all its rounds", now_s)
            return True
        if job_id not in self._holding and self._budgets.left_of(job_id) < self._budgets.left_usd:
            reason = starts_nowhere(one.need, view.offers)
            if reason:
                end_job(self._store, job_id, JobState.FAILED, now_s, reason)
                return True
        reason = pays_nowhere(one.need, view.offers)
        if not reason:
            return False
        with self._store.transaction():
            leave(self._store, one.task, reason, now_s)
        return True

    def _outcome(self, one: Asked, decision: Decision, view: View, now_s: float) -> Outcome:
        return self._guards.bound(
            decision.row,
            decision.need,
            decision.offer_id,
            view.offers,
            now_s,
            one.standing,
            self._budgets.pay(decision.need.key.job_id),
        )

    def _watch(self, one: Asked, outcome: Outcome, view: View, now_s: float) -> Watched | None:
        """What another policy would have made of the same task; None where there is no other."""
        watched = self._policies.watched
        if watched is None or watched.policy_for(one.need) is self._policies.decides.policy_for(one.need):
            return None
        decision = watched.decide(view.snapshot([one.need]), [one.need], view.offers)
        self._records.answer(decision, now_s)
        choice = self._outcome(one, decision, view, now_s).offer_id
        usd = appraised_usd(one.need, view)
        # A task that runs stays with "none", which is appraised as its own place.
        stays = one.need.here if one.need.running and one.need.here in usd else None
        difference_usd = usd[choice or stays] - usd[outcome.offer_id or stays]
        return Watched(decision.policy, choice, difference_usd)

    def _do(self, one: Asked, outcome: Outcome, number: int | None, view: View, now_s: float) -> None:
        """What a choice means: stay, wait, release, go or move. Needs a transaction."""
        need, chosen = one.need, outcome.offer_id
        if self._policies.mode is Mode.DRY_RUN or (chosen is not None and chosen == need.here):
            return
        task = one.task
        if task.phase is Phase.WAITING:
            self._release(task, "released while it waits for others", now_s)
        if chosen is None:
            return
        offer, instances = view.offer(chosen), need.resources.instances
        self._budgets.take(offer, need)
        if task.phase in (None, Phase.WAITING):
            place(self._store, need.key, instances, offer, now_s, number)
            self._roster.questions.placed(need.key)
        else:
            why: dict[str, Json] = {"reason": outcome.overruled or "the policy's choice"}
            if outcome.gain_usd is not None:
                why |= {"gain_usd": outcome.gain_usd, "cost_usd": outcome.cost_usd}
            intend_move(self._store, task, instances, offer, now_s, number, why)
        self._roster.lateness.start(need.key, need.misses)
        view.take(chosen, instances)

    def _release(self, task: Task, reason: str, now_s: float) -> None:
        with self._store.transaction():
            requeue(self._store, task, now_s, reason=reason)

    def _ask_again_s(self, need: Need, chosen: str | None, view: View) -> float:
        """In the time that training asks in, now that this was chosen."""
        if self._policies.mode is Mode.DRY_RUN or need.kind != "federated":
            return self._settings.ask_again_s
        if chosen is None or chosen != need.here:
            self._roster.memberships.decided(need.key, None if chosen is None else view.offer(chosen))
        return self._roster.memberships.ask_again_s(need.key, self._settings.ask_again_s)


# Records of decisions: candidates, choice, the watched policy's choice; and hopeless deadlines.


INVALID_S = 3600.0
"""A policy's invalid answers of one kind are told of once in this time; `times` counts them."""
OTHER_CANDIDATES = 12  # this many candidates besides the chosen one are written down with each decision
_MOST_EVENTS = 10_000


@dataclass(frozen=True)
class Watched:
    """Another policy's answer about the same task at the same moment; the safety net and the gain that a move
    must bring hold for it as well.
    """

    policy: str
    choice: str | None  # offer; None for "none for now"
    # expected USD of its choice minus that of the one that was taken, by one appraisal for both (see
    # `appraised_usd`): below 0 the watched policy would have been cheaper
    difference_usd: float


_Stay = tuple[str | None, str | None, str | None, bool]
"""Why a task waits or stays: its place, the choice, the shadow choice, whether it was overruled."""


class Records:
    """Writes decisions down."""

    def __init__(self, store: Store, mode: Mode) -> None:
        self._store, self._mode = store, mode
        self._stays: dict[TaskKey, set[_Stay]] = {}
        """Answers recorded for each task since it began to wait or stay."""
        self._hopeless: set[TaskKey] = set()
        self._invalid: dict[tuple[str, str], tuple[float, int]] = {}
        """By policy and fault: when its next event is due, and how many answers were not told of."""

    def decision(
        self,
        decision: Decision,
        outcome: Outcome,
        watched: Watched | None,
        latency_s: float,
        now_s: float,
    ) -> int | None:
        """Write one down, with its event. Needs a transaction.

        Returns its id; None where nothing follows from it (the task waits, or stays where it is) and the same
        was written down since it does.
        """
        key, chosen = decision.need.key, outcome.offer_id
        self.answer(decision, now_s)
        if decision.invalid is not None:
            outcome = replace(outcome, overruled=outcome.overruled or decision.invalid.words)
        stay = _stay(decision, outcome, watched)
        if stay is None:
            self._stays.pop(key, None)
        elif stay in self._stays.setdefault(key, set()):
            return None
        else:
            self._stays[key].add(stay)
        record = self._store.decisions.add(
            DecisionRecord(
                time_s=now_s,
                policy=decision.policy,
                mode=self._mode,
                key=key,
                candidates=_candidates(decision, outcome),
                chosen=chosen,
                latency_s=latency_s,
                shadow_policy=None if watched is None else watched.policy,
                shadow_choice=None if watched is None else watched.choice,
                shadow_difference=None if watched is None else watched.difference_usd,
            )
        )
        data: dict[str, Json] = {"offer": chosen, "policy": decision.policy, "overruled": outcome.overruled}
        taken = next(item for item in decision.candidates if item.offer_id == chosen)
        if taken.egress_usd:
            data["egress_usd"] = taken.egress_usd
        if decision.invalid is not None:
            data["invalid"] = decision.invalid.fault
        if watched is not None:
            data["watched"] = {
                "policy": watched.policy,
                "offer": watched.choice,
                "difference_usd": watched.difference_usd,
            }
        self._store.events.add("task.decided", now_s, data, key=key, decision_id=record.decision_id)
        return record.decision_id

    def repeats(self, decision: Decision, outcome: Outcome, watched: Watched | None) -> bool:
        """Whether `decision` repeats what is stored."""
        said = self._stays.get(decision.need.key, ())
        return decision.invalid is None and _stay(decision, outcome, watched) in said

    def answer(self, decision: Decision, now_s: float) -> None:
        """Tell of a policy's answer that was not followed, if it was not. Needs a transaction."""
        invalid = decision.invalid
        if invalid is None:
            return
        key = decision.policy, invalid.fault
        due_s, before = self._invalid.get(key, (-math.inf, 0))
        if now_s < due_s:
            self._invalid[key] = due_s, before + 1
            return
        self._invalid[key] = now_s + INVALID_S, 0
        data: dict[str, Json] = {
            "policy": decision.policy,
            "fault": invalid.fault,
            "answered": invalid.answered,
            "guide": GUIDE,
            "offer": decision.offer_id,
            "times": before + 1,
        }
        log.error("a policy's answer is not valid", **data)
        self._store.events.add("policy.invalid", now_s, data, key=decision.need.key)

    def hopeless(self, key: TaskKey, reason: str, now_s: float) -> None:
        """Say once that a deadline can be met nowhere any more."""
        if key in self._hopeless:
            return
        self._hopeless.add(key)
        said = self._store.events.after(0, _MOST_EVENTS, job_id=key.job_id)
        if any(event.kind == "task.hopeless" and event.task == key.task for event in said):
            return
        with self._store.transaction():
            self._store.events.add("task.hopeless", now_s, {"reason": reason}, key=key)

    def keep_only(self, keys: set[TaskKey]) -> None:
        """Forget all other tasks."""
        self._stays = {key: said for key, said in self._stays.items() if key in keys}
        self._hopeless &= keys


def _stay(decision: Decision, outcome: Outcome, watched: Watched | None) -> _Stay | None:
    """None where something follows from a decision."""
    need, chosen = decision.need, outcome.offer_id
    releases = chosen is None and need.here is not None and not need.running
    if releases or chosen not in (None, need.here):
        return None
    return need.here, chosen, None if watched is None else watched.choice, bool(outcome.overruled)


def _candidates(decision: Decision, outcome: Outcome) -> tuple[CandidateRecord, ...]:
    """The first ones of the policy's ranking, the chosen one among them.

    Why a choice was overruled stands with what was chosen instead; where the task stays, with the choice. So
    does why a choice was taken that does not look best.
    """
    chosen, overruled = outcome.offer_id, outcome.overruled
    kept = [
        item for k, item in enumerate(decision.candidates) if k <= OTHER_CANDIDATES or item.offer_id == chosen
    ]
    about = decision.offer_id if overruled and chosen is None else chosen
    words = overruled or decision.why
    return tuple(
        CandidateRecord(
            offer_id=item.offer_id,
            values={name: value for name, value in item.values.items() if math.isfinite(value)},
            price_usd_hour=None if item.offer_id is None else item.price_usd_hour,
            available=item.valid,
            reason=_words(item, words if item.offer_id == about else ""),
            total=item.total,
            expected_usd=item.expected_usd,
            finish_s=None if item.offer_id is None else item.finish_s,
            risk=None if item.offer_id is None else item.risk,
        )
        for item in kept
    )


def _words(item: Candidate, overruled: str) -> str:
    """Why it was not or could not be chosen; and what a start there costs besides its instances."""
    words = [overruled or item.reason]
    if item.valid and item.egress_usd:
        words.append(f"its data move to {item.region} for {item.egress_usd:.4f} USD")
    return "; ".join(word for word in words if word)
