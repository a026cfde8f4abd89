"""Decisions and intents: what was chosen and why, and what the scheduler is about to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.store.database import Noun
from spotweave.deploy.store.schema import Json, decisions, intents, plain

# Intents: what the scheduler is about to do, written before it does it and confirmed after.
#
# A scheduler that was killed in between finds its pending intents, looks what really runs, and does them
# again: each action is idempotent. Payloads name instances by their own ids; secrets are not repeated in
# them.


class IntentKind(StrEnum):
    """Kind of action."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    START = "start"  # an attempt at a task
    STOP = "stop"  # an attempt at a task
    DRAIN = "drain"
    MOVE = "move"  # a task that runs, once the instances of another place are ready


class IntentState(StrEnum):
    """State of an intent."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"  # failed for good; do not retry


@dataclass(frozen=True)
class Intent:
    """Something to do."""

    intent_id: int
    kind: IntentKind
    state: IntentState
    payload: Mapping[str, Any]
    # what it is done to (id of an instance or an attempt); no two pending ones of a kind share it
    target: str
    attempts: int  # number of failed attempts
    not_before_s: float  # epoch seconds before which it is not tried again
    error: str
    created_s: float
    ended_s: float | None  # epoch seconds; None while it is pending
    decision_id: int | None


def _intent(row: Row[Any]) -> Intent:
    values = dict(row._mapping)
    return Intent(**{**values, "kind": IntentKind(values["kind"]), "state": IntentState(values["state"])})


class Intents(Noun):
    """The intents of a store. Writing needs a transaction."""

    def add(
        self,
        kind: IntentKind,
        target: str,
        payload: Mapping[str, Json],
        now_s: float,
        *,
        decision_id: int | None = None,
    ) -> Intent:
        """Intend something; if the same is pending for the same target, that intent is returned unchanged."""
        connection = self._database.writing
        same = (intents.c.kind == kind.value) & (intents.c.target == target) & (intents.c.state == "pending")
        row = connection.execute(select(intents).where(same)).one_or_none()
        if row is not None:
            return _intent(row)
        row = connection.execute(
            insert(intents)
            .values(
                kind=kind.value,
                state=IntentState.PENDING.value,
                payload=dict(payload),
                target=target,
                not_before_s=0.0,
                error="",
                created_s=now_s,
                decision_id=decision_id,
            )
            .returning(intents)
        ).one()
        return _intent(row)

    def get(self, intent_id: int) -> Intent:
        """One intent. Raises NotFoundError."""
        query = select(intents).where(intents.c.intent_id == intent_id)
        return _intent(self._database.found(query, f"there is no intent {intent_id}"))

    def pending(self, kind: IntentKind | None = None) -> Sequence[Intent]:
        """All (of a kind) that are not done yet, the oldest first, whether due or not."""
        query = select(intents).where(intents.c.state == "pending").order_by(intents.c.intent_id)
        if kind is not None:
            query = query.where(intents.c.kind == kind.value)
        return [_intent(row) for row in self._database.read_all(query)]

    def pending_counts(self) -> Mapping[IntentKind, tuple[int, float]]:
        """By kind: the number of pending intents, and when the oldest was made."""
        query = (
            select(intents.c.kind, func.count(), func.min(intents.c.created_s))
            .where(intents.c.state == "pending")
            .group_by(intents.c.kind)
        )
        return {IntentKind(kind): (count, first_s) for kind, count, first_s in self._database.read_all(query)}

    def pending_targets(self, *kinds: IntentKind) -> set[str]:
        """What those that are not done yet, of these kinds, are done to."""
        query = select(intents.c.target).where(
            intents.c.state == "pending", intents.c.kind.in_([kind.value for kind in kinds])
        )
        return {row.target for row in self._database.read_all(query)}

    def due(
        self, now_s: float, limit: int = 1000, kinds: Collection[IntentKind] = tuple(IntentKind)
    ) -> Sequence[Intent]:
        """Intents of these kinds that may be tried now, the oldest first."""
        query = (
            select(intents)
            .where(
                intents.c.state == "pending",
                intents.c.not_before_s <= now_s,
                intents.c.kind.in_([kind.value for kind in kinds]),
            )
            .order_by(intents.c.intent_id)
            .limit(limit)
        )
        return [_intent(row) for row in self._database.read_all(query)]

    def done(self, intent_id: int, now_s: float) -> bool:
        """Mark an intent as done. False if it was not pending any more."""
        return self._leave(intent_id, state=IntentState.DONE.value, ended_s=now_s)

    def failed(self, intent_id: int, error: str, now_s: float) -> bool:
        """Mark an intent as failed for good. False if it was not pending any more."""
        return self._leave(
            intent_id,
            state=IntentState.FAILED.value,
            ended_s=now_s,
            error=plain(error),
            attempts=intents.c.attempts + 1,
        )

    def retry(self, intent_id: int, error: str, not_before_s: float) -> bool:
        """Schedule a retry after a failure. False if the intent was not pending any more."""
        return self._leave(
            intent_id, error=plain(error), not_before_s=not_before_s, attempts=intents.c.attempts + 1
        )

    def _leave(self, intent_id: int, **values: object) -> bool:
        pending = (intents.c.intent_id == intent_id) & (intents.c.state == "pending")
        changed = self._database.writing.execute(update(intents).where(pending).values(**values)).rowcount
        if not changed:
            self.get(intent_id)
        return bool(changed)


# Decisions: which candidates a policy saw, what it thought of them and which it chose.


class Mode(StrEnum):
    """Effect of a policy's choices."""

    ACT = "act"
    SHADOW = "shadow"  # a rule acts; the policy's choices are only written down
    DRY_RUN = "dry-run"


@dataclass(frozen=True)
class CandidateRecord:
    """One place the task could have been put, or none for now.

    Attributes:
        offer_id: the offer; None for "none for now".
        values: value per component, by its name; empty for rules that have none.
        price_usd_hour: of all instances that the task would hold there; None for "none for now".
        available: whether it could be chosen.
        reason: why it could not, or of the chosen one which guard or margin decided.
        total: what the policy ranked by, higher is better; None for rules.
        expected_usd: until the task's end, by the rule `expected_cost`.
        finish_s: expected seconds until the end of its work (or next execution); None for "none for now".
        risk: chance of an interruption until then; None for "none for now".
    """

    offer_id: str | None
    values: Mapping[str, float] = field(default_factory=dict)
    price_usd_hour: float | None = None
    available: bool = True
    reason: str = ""
    total: float | None = None
    expected_usd: float | None = None
    finish_s: float | None = None
    risk: float | None = None


@dataclass(frozen=True)
class DecisionRecord:
    """One answer to "this task: which cluster, or none for now?"."""

    time_s: float
    policy: str
    mode: Mode  # what became of it
    key: TaskKey
    candidates: tuple[CandidateRecord, ...]  # all that were considered, in their order
    chosen: str | None
    latency_s: float  # how long the policy took
    shadow_policy: str | None = None  # the policy that was asked for comparison; None if none was
    shadow_choice: str | None = None  # what it would have chosen; None for "none for now"
    # expected USD of the shadow's choice minus that of the chosen one, both by the one appraisal,
    # `deploy.scheduler.decider.appraised_usd`: below 0 the shadow would have been cheaper
    shadow_difference: float | None = None
    decision_id: int = 0  # rising; 0 before it is written


def _decision(row: Row[Any]) -> DecisionRecord:
    values = dict(row._mapping)
    values["key"] = TaskKey(values.pop("job_id"), values.pop("task"))
    values["mode"] = Mode(values["mode"])
    values["candidates"] = tuple(CandidateRecord(**candidate) for candidate in values["candidates"])
    return DecisionRecord(**values)


class Decisions(Noun):
    """The decisions of a store. Writing needs a transaction."""

    def add(self, decision: DecisionRecord) -> DecisionRecord:
        """Write one down. Returns it with its id."""
        values = vars(decision) | {
            "mode": decision.mode.value,
            "job_id": decision.key.job_id,
            "task": decision.key.task,
            "candidates": [
                {**vars(candidate), "values": dict(candidate.values), "reason": plain(candidate.reason)}
                for candidate in decision.candidates
            ],
        }
        del values["key"], values["decision_id"]
        statement = insert(decisions).returning(decisions.c.decision_id)
        return replace(decision, decision_id=self._database.writing.execute(statement, values).scalar_one())

    def get(self, decision_id: int) -> DecisionRecord:
        """One decision. Raises NotFoundError."""
        query = select(decisions).where(decisions.c.decision_id == decision_id)
        missing = f"there is no decision {decision_id}: it may be older than what is kept"
        return _decision(self._database.found(query, missing))

    def latest(self, limit: int, *, job_id: str | None = None) -> Sequence[DecisionRecord]:
        """The latest `limit` (of one job), the newest first."""
        query = select(decisions).order_by(decisions.c.decision_id.desc()).limit(limit)
        if job_id is not None:
            query = query.where(decisions.c.job_id == job_id)
        return [_decision(row) for row in self._database.read_all(query)]
