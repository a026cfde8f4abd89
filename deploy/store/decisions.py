"""Decisions: which candidates a policy saw, what it thought of them and which it chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, insert, select

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.store.database import Noun
from spotweave.deploy.store.schema import decisions, plain


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
