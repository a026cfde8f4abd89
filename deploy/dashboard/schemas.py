"""What `GET /v1/overview` answers: everything that the dashboard shows at once, bounded in size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from deploy.model.instances import Market
from deploy.model.jobs import JobState
from deploy.model.tasks import Phase
from deploy.server.views import CostView, EventView, InstanceView, OfferView, View
from deploy.store.decisions import CandidateRecord, DecisionRecord, Mode
from deploy.store.gantt import Span

MAX_TEXT = 300
"""Longer messages are cut here; the job's explanation has all of them."""

_COST: dict[str, Any] = {
    "usd": 0.03,
    "disk_usd": 0.0,
    "egress_usd": 0.0,
    "on_demand_usd": 0.1,
    "instance_seconds": 360,
}
EXAMPLE: dict[str, Any] = {
    "time_s": 1_772_323_560.0,
    "deployment": "sw-0f8fad5b1c2d",
    "policy": "spotweave",
    "federated_policy": "round_cost",
    "mode": "act",
    "scheduler": True,
    "last_pass_s": 1_772_323_558.5,
    "pass_within_s": 60.0,
    "counts": {"pending": 0, "running": 1, "succeeded": 0, "failed": 0, "cancelled": 0},
    "cost": _COST,
    "jobs": [
        {
            "job_id": "nightly-report-3f2a",
            "name": "nightly-report",
            "kind": "spark-batch",
            "state": "running",
            "submitter": "ana",
            "submitted_s": 1_772_323_200.0,
            "ended_s": None,
            "deadline_s": 1_772_324_100.0,
            "progress": 0.4,
            "misses": 0,
            "interruptions": 1,
            "reason": "",
            "cost": _COST,
            "tasks": 1,
            "tasks_done": 0,
            "lanes": [
                {
                    "task": "main",
                    "attempt": 2,
                    "phase": "running",
                    "progress": 0.4,
                    "executions_done": 0,
                    "waiting_since_s": None,
                    "not_before_s": None,
                    "message": "",
                    "after": [],
                    "spans": [
                        {
                            "offer_id": "aws/us-east-1a/g5.xlarge/spot",
                            "market": "spot",
                            "instances": 1,
                            "usd_hour": 0.3,
                            "requested_s": 1_772_323_200.0,
                            "launched_s": 1_772_323_201.0,
                            "ready_s": 1_772_323_230.0,
                            "ended_s": 1_772_323_380.0,
                            "notice_s": None,
                            "interruptions": [1_772_323_380.0],
                        }
                    ],
                }
            ],
        }
    ],
    "instances_live": 0,
    "instances": [],
    "offers_known": 0,
    "offers": [],
    "decisions": [],
    "events": [],
}


class SpanView(BaseModel):
    """The instances of one attempt, from the request until the last of them ended. Times: epoch seconds."""

    offer_id: str
    market: Market
    instances: int
    usd_hour: float
    """Price of all instances at the prices of the request."""
    requested_s: float
    launched_s: float | None
    """Launch time of the first instance; null if none was launched yet."""
    ready_s: float | None
    """When all were."""
    ended_s: float | None
    notice_s: float | None
    """When the provider said it will end the first of them."""
    interruptions: list[float]
    """When the provider ended any of them."""

    @classmethod
    def of(cls, span: Span) -> SpanView:
        """Build from the store's span."""
        return cls(**{name: getattr(span, name) for name in cls.model_fields})


class LaneView(View):
    """A task of a job."""

    task: str
    attempt: int
    """0 before the first."""
    phase: Phase | None
    """Phase of the latest attempt; null while the task waits for a place."""
    progress: float
    executions_done: int
    waiting_since_s: float | None
    not_before_s: float | None
    """Earliest time of the next placement; null if it may be placed now."""
    message: str
    after: list[str]
    """Tasks of its job that must have succeeded before it is placed."""
    spans: list[SpanView]
    """The oldest first."""


class JobBar(View):
    """A job and its lanes."""

    job_id: str
    name: str
    kind: str
    state: JobState
    submitter: str
    submitted_s: float
    ended_s: float | None
    deadline_s: float | None
    """Epoch seconds; null without one, and for streaming jobs, whose batches have deadlines."""
    progress: float
    """Mean of its tasks; 1 once it has succeeded."""
    misses: int
    """Batch deadlines missed."""
    interruptions: int
    """Interruptions within the spans shown, drawn as moments."""
    reason: str
    cost: CostView
    tasks: int
    """Number of tasks; `lanes` may have fewer."""
    tasks_done: int
    """Number of tasks that have succeeded."""
    lanes: list[LaneView]


class DecisionLine(View):
    """A decision with the chosen candidate and the next best: `/v1/decisions/ID` has all."""

    decision_id: int
    time_s: float
    job_id: str
    task: str
    policy: str
    mode: Mode
    chosen: str | None
    """An offer; null: none for now."""
    values: Mapping[str, float]
    """Values of the chosen candidate by component."""
    reason: str
    """Why the safety net overruled the policy; "" where it did not."""
    next_best: str | None
    """The available offer after the chosen one in the policy's order; null without one."""
    next_values: Mapping[str, float]
    latency_s: float
    shadow_policy: str | None
    shadow_choice: str | None
    shadow_difference: float | None

    @classmethod
    def of(cls, one: DecisionRecord) -> DecisionLine:
        """Build from the store's record."""
        chosen = next((item for item in one.candidates if item.offer_id == one.chosen), None)
        others = (
            item for item in one.candidates if item.available and item.offer_id not in (one.chosen, None)
        )
        follows = next(others, None)
        return cls.of_fields(
            one,
            **one.key._asdict(),
            values=_values(chosen),
            reason="" if chosen is None else chosen.reason[:MAX_TEXT],
            next_best=None if follows is None else follows.offer_id,
            next_values=_values(follows),
        )


class Overview(BaseModel):
    """Everything at one moment."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    time_s: float
    """The service's clock."""
    deployment: str
    policy: str
    federated_policy: str | None
    mode: Mode | None
    """Mode of this process's scheduler, else of the latest decision; null before the first."""
    scheduler: bool
    """Whether this process has one; if not, `offers` and `last_pass_s` are not known."""
    last_pass_s: float | None
    pass_within_s: float
    """An older pass means that the scheduler does not work."""
    counts: dict[JobState, int]
    cost: CostView
    """Cost of everything so far."""
    jobs: list[JobBar]
    """This many of each group: running (newest first), waiting (oldest first), ended (newest first)."""
    instances_live: int
    """Number of live instances; `instances` may have fewer."""
    instances: list[InstanceView]
    """Instances that exist or may exist, the newest first."""
    offers_known: int
    """Number of offers; `offers` may have fewer."""
    offers: list[OfferView]
    """As they were in the latest pass: used ones first, then available ones, then by price."""
    decisions: list[DecisionLine]
    """The latest, the newest first."""
    events: list[EventView]
    """The latest, the newest first."""


def _values(candidate: CandidateRecord | None) -> Mapping[str, float]:
    """Values of a policy's candidate; a rule has none, so what it would cost by the rule `expected_cost`."""
    if candidate is None or candidate.values or candidate.expected_usd is None:
        return {} if candidate is None else candidate.values
    return {"expected_usd": candidate.expected_usd}
