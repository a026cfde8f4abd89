"""Which tasks are asked about now, and when again."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from deploy.model.instances import Offer
from deploy.model.jobs import TaskKey
from deploy.model.tasks import Phase
from deploy.model.workflows import Workflow
from deploy.scheduler.decide.decider import Candidate, Decision
from deploy.scheduler.retries import Quarantine
from deploy.scheduler.settings import SchedulerSettings
from deploy.scheduler.snapshot.estimates import DEFAULT_STANDARD_S, Learned
from deploy.scheduler.snapshot.rounds import DEFAULT_EPOCH_S
from deploy.store.decisions import CandidateRecord, DecisionRecord, Mode
from deploy.store.instances import Instance
from deploy.store.schema import Json
from deploy.store.store import Store
from deploy.store.tasks import Task, Waiting
from envs.simulation.guards.safety import spare_s


class Questions:
    """When each task is asked about next. A scheduler that was restarted asks all who wait at once.

    Args:
        reconsider_s: tasks that are reconsidered while they run are asked about this often (0: never);
            streams at the end of a batch then.
            Every task is asked about at once when its provider advises to leave or announces the end of one
            of its instances, which no training does.
    """

    def __init__(self, reconsider_s: float) -> None:
        self._reconsider_s = reconsider_s
        self._next_s: dict[TaskKey, float] = {}
        self._running_s: dict[TaskKey, float] = {}
        self._batches: dict[TaskKey, int] = {}
        self._warned: dict[TaskKey, frozenset[str]] = {}

    def waits_due(self, key: TaskKey, not_before_s: float, now_s: float) -> bool:
        """Whether a task without a place, or that waits for others, is asked about now."""
        self._stopped(key)
        self._warned.pop(key, None)
        return not_before_s <= now_s and self._next_s.get(key, -math.inf) <= now_s

    def runs_due(
        self, task: Task, held: Sequence[Instance], reconsidered: bool, streams: bool, now_s: float
    ) -> bool:
        """Whether a task that runs, and is reconsidered now and then or not, is asked about now."""
        if task.phase is not Phase.RUNNING or not held:
            self._stopped(task.key)
            return False
        batches = self._batches.get(task.key, task.executions_done)
        self._batches[task.key] = task.executions_done
        if doomed(held):
            return self._next_s.get(task.key, -math.inf) <= now_s
        warned = _warned(held)
        if warned - self._warned.get(task.key, frozenset()):
            self._warned[task.key] = warned
            return True
        if self._reconsider_s <= 0 or not reconsidered:
            return False
        if self._running_s.setdefault(task.key, now_s + self._reconsider_s) > now_s:
            return False
        return not streams or task.executions_done > batches

    def _stopped(self, key: TaskKey) -> None:
        """Forget what was answered while the task ran."""
        if self._running_s.pop(key, None) is not None:
            self._next_s.pop(key, None)
        self._batches.pop(key, None)

    def again(self, key: TaskKey, now_s: float, wait_s: float) -> None:
        """Set when a task that was asked about is asked again, if it waits then."""
        self._next_s[key] = now_s + wait_s
        if key in self._running_s:
            self._running_s[key] = now_s + self._reconsider_s

    def last_due_s(self, key: TaskKey) -> float:
        """Since when it may be asked about; the earliest time for one that never was."""
        return self._next_s.get(key, -math.inf)

    def placed(self, key: TaskKey) -> None:
        """Note a placement: when the task loses its place, it is asked about at once."""
        self._next_s.pop(key, None)

    def keep_only(self, keys: Collection[TaskKey]) -> None:
        """Forget all others."""
        for known in (self._next_s, self._running_s, self._batches, self._warned):
            for key in known.keys() - keys:
                del known[key]


def doomed(held: Sequence[Instance]) -> bool:
    """Whether the end of all of them has been announced: the place is as good as lost."""
    return bool(held) and all(one.notice_s is not None for one in held)


def _warned(held: Sequence[Instance]) -> frozenset[str]:
    return frozenset(
        f"{one.instance_id}:{one.notice_s is not None}"
        for one in held
        if one.rebalance or one.notice_s is not None
    )


# Which waiting tasks have a deadline that the safety net may have to see to now.


class Urgency:
    """Finds them among ten thousand without reading a spec twice.

    Args:
        store: of the deployment.
        settings: of the loop.
        learned: how long jobs of a name took.
        quarantine: guards what is read of each job.
    """

    def __init__(
        self, store: Store, settings: SchedulerSettings, learned: Learned, quarantine: Quarantine
    ) -> None:
        self._store, self._settings = store, settings
        self._learned, self._quarantine = learned, quarantine
        self._ends: dict[str, tuple[float, float] | None] = {}
        """By job: when its deadline is, and its standard time; None without a deadline."""
        self._safe_for = (0.0, 0.0)
        self._safe_s: dict[str, float] = {}
        """By job: until when it cannot be urgent while on-demand capacity starts so soon and is so fast."""
        self._patient: set[TaskKey] = set()
        """Tasks that had time left in the previous pass and are not due yet."""

    def urgent(self, rows: Sequence[Waiting], offers: Sequence[Offer], now_s: float) -> list[Waiting]:
        """Tasks whose last safe moment has come, the nearest deadline first."""
        self._look_up_ends({row.key.job_id for row in rows} - self._ends.keys())
        sure = [offer for offer in offers if offer.market != "spot"]
        start_s = max((offer.launch_s for offer in sure), default=0.0) + self._settings.set_up_s
        slowest = min((offer.speed for offer in sure), default=1.0)
        found = []
        for row in self._may_be_urgent(rows, start_s, slowest, now_s):
            end = self._ends[row.key.job_id]
            if end is not None and self._spare_s(end, row.saved, start_s, slowest, now_s) <= 0:
                found.append((end[0], row))
        return [row for _, row in sorted(found)]

    def cannot_wait(
        self, backing_off: Sequence[Waiting], offers: Sequence[Offer], now_s: float
    ) -> list[Waiting]:
        """Tasks whose last safe moment precedes the end of their back-off: they are tried at that moment.

        If that fails too they wait like all others, lest a fault that lasts uses up all their attempts.
        """
        urgent = self.urgent(backing_off, offers, now_s) if backing_off else []
        found = [row for row in urgent if row.key in self._patient]
        self._patient = {row.key for row in backing_off} - {row.key for row in urgent}
        return found

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget all others."""
        for job_id in self._ends.keys() - job_ids:
            del self._ends[job_id]
            self._safe_s.pop(job_id, None)

    def _may_be_urgent(
        self, rows: Sequence[Waiting], start_s: float, slowest: float, now_s: float
    ) -> list[Waiting]:
        """Tasks that would be urgent if none of their work were done: computed once per job."""
        if self._safe_for != (start_s, slowest):
            self._safe_for, self._safe_s = (start_s, slowest), {}
        for job_id in self._ends.keys() - self._safe_s.keys():
            end = self._ends[job_id]
            safe_s = math.inf if end is None else self._spare_s(end, 0.0, start_s, slowest, 0.0)
            self._safe_s[job_id] = safe_s - 1.0  # sooner by more than all rounding
        return [row for row in rows if self._safe_s[row.key.job_id] <= now_s]

    def _spare_s(
        self, end: tuple[float, float], saved: float, start_s: float, slowest: float, now_s: float
    ) -> float:
        """Seconds for which a task whose job ends so can be left to later passes."""
        needs_s = start_s + end[1] * (1 - saved) / slowest
        spare = spare_s(end[0] - now_s, needs_s, self._settings.guards.rules())
        return spare - 2 * self._settings.period_s

    def _look_up_ends(self, job_ids: Collection[str]) -> None:
        """Load the ends of new jobs at once: there may be ten thousand."""
        for job_id, submitted_s, spec in self._store.jobs.specs(job_ids):
            self._ends[job_id] = None
            with self._quarantine.guard(job_id, "looking up its deadline"):
                self._ends[job_id] = self._end_of(submitted_s, spec)

    def _end_of(self, submitted_s: float, text: str) -> tuple[float, float] | None:
        # Not as a `JobSpec`: that takes ten times as long.
        spec = json.loads(text)
        work = spec["work"]
        if work.get("deadline_s") is None:
            return None
        if work["kind"] == "flower":
            took_s = work["rounds"] * (work["epoch_s"] or DEFAULT_EPOCH_S)
        elif work["kind"] == "bag":
            took_s = 60.0 * max(task["minutes"] for task in work["tasks"])
        elif work["kind"] == "workflow":
            took_s = Workflow.model_validate_json(json.dumps(work)).standard_s
        else:
            learned_s = self._learned.standard_s(spec["name"], work["kind"], "main")
            took_s = work["standard_s"] or learned_s or DEFAULT_STANDARD_S
        return submitted_s + work["deadline_s"], took_s


# Records of decisions: candidates, choice, the watched policy's choice; and hopeless deadlines.

INVALID_S = 3600.0
"""A policy's invalid answers of one kind are told of once in this time; `times` counts them."""
OTHER_CANDIDATES = 12
"""This many candidates besides the chosen one are written down with each decision."""
_MOST_EVENTS = 10_000
log = structlog.get_logger("scheduler")


@dataclass(frozen=True)
class Watched:
    """Another policy's answer about the same task at the same moment; the safety net and the gain that a move
    must bring hold for it as well.

    Attributes:
        policy: its name.
        choice: offer; None for "none for now".
        difference_usd: expected USD of its choice minus that of the one that was taken, by one appraisal for
            both (see `decide.appraisal`): below 0 the watched policy would have been cheaper.
    """

    policy: str
    choice: str | None
    difference_usd: float


_Stay = tuple[str | None, str | None, str | None, bool]
"""Why a task waits or stays: its place, the choice, the shadow choice, whether it was overruled."""


class Records:
    """Writes decisions down.

    Args:
        store: of the deployment.
        mode: of the policies.
    """

    def __init__(self, store: Store, mode: Mode) -> None:
        self._store = store
        self._mode = mode
        self._stays: dict[TaskKey, set[_Stay]] = {}
        """Answers recorded for each task since it began to wait or stay."""
        self._hopeless: set[TaskKey] = set()
        self._invalid: dict[tuple[str, str], tuple[float, int]] = {}
        """By policy and fault: when its next event is due, and how many answers were not told of."""

    def decision(
        self,
        decision: Decision,
        chosen: str | None,
        overruled: str,
        watched: Watched | None,
        latency_s: float,
        now_s: float,
    ) -> int | None:
        """Write one down, with its event. Needs a transaction.

        Returns:
            Its id; None where nothing follows from it (the task waits, or stays where it is) and the same
            was written down since it does.
        """
        key = decision.need.key
        self.answer(decision, now_s)
        if decision.invalid is not None:
            overruled = overruled or decision.invalid.words
        stay = _stay(decision, chosen, overruled, watched)
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
                candidates=_candidates(decision, chosen, overruled),
                chosen=chosen,
                latency_s=latency_s,
                shadow_policy=None if watched is None else watched.policy,
                shadow_choice=None if watched is None else watched.choice,
                shadow_difference=None if watched is None else watched.difference_usd,
            )
        )
        data: dict[str, Json] = {"offer": chosen, "policy": decision.policy, "overruled": overruled}
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

    def repeats(
        self, decision: Decision, chosen: str | None, overruled: str, watched: Watched | None
    ) -> bool:
        """Whether `decision` repeats what is stored."""
        said = self._stays.get(decision.need.key, ())
        return decision.invalid is None and _stay(decision, chosen, overruled, watched) in said

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
            "guide": invalid.guide,
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


def _stay(decision: Decision, chosen: str | None, overruled: str, watched: Watched | None) -> _Stay | None:
    """None where something follows from a decision."""
    need = decision.need
    releases = chosen is None and need.here is not None and not need.running
    if releases or chosen not in (None, need.here):
        return None
    return need.here, chosen, None if watched is None else watched.choice, bool(overruled)


def _candidates(decision: Decision, chosen: str | None, overruled: str) -> tuple[CandidateRecord, ...]:
    """The first ones of the policy's ranking, the chosen one among them.

    Why a choice was overruled stands with what was chosen instead; where the task stays, with the choice. So
    does why a choice was taken that does not look best.
    """
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
