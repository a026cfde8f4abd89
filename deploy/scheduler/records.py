"""Records of decisions: candidates, choice, the watched policy's choice; and hopeless deadlines."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import structlog

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.scheduler.decider import GUIDE, Candidate, Decision
from spotweave.deploy.scheduler.guards import Outcome
from spotweave.deploy.store.decisions import CandidateRecord, DecisionRecord, Mode
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store

INVALID_S = 3600.0
"""A policy's invalid answers of one kind are told of once in this time; `times` counts them."""
OTHER_CANDIDATES = 12  # this many candidates besides the chosen one are written down with each decision
_MOST_EVENTS = 10_000
log = structlog.get_logger("scheduler")


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
