"""The dashboard: its page and files, and `GET /v1/overview`, which fills it with data of bounded size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from spotweave.deploy.billing import Bill
from spotweave.deploy.model.instances import Market
from spotweave.deploy.model.jobs import JobState
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.access import Caller
from spotweave.deploy.server.context import Context, SchedulerView
from spotweave.deploy.server.views import (
    ERRORS,
    CostView,
    EventView,
    InstanceView,
    JobHead,
    OfferView,
    View,
    deadline_of,
    hidden_text,
    reason_for,
)
from spotweave.deploy.store.gantt import Sums
from spotweave.deploy.store.intents import CandidateRecord, DecisionRecord, Mode
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task

MAX_TEXT = 300  # longer messages are cut here; the job's explanation has all of them

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


class SpanView(View):
    """The instances of one attempt, from the request until the last of them ended. Times: epoch seconds."""

    offer_id: str
    market: Market
    instances: int
    usd_hour: float  # price of all instances at the prices of the request
    requested_s: float
    launched_s: float | None  # launch time of the first instance; null if none was launched yet
    ready_s: float | None  # when all were
    ended_s: float | None
    notice_s: float | None  # when the provider said it will end the first of them
    interruptions: list[float]  # when the provider ended any of them


class LaneView(View):
    """A task of a job."""

    task: str
    attempt: int  # 0 before the first
    phase: Phase | None  # phase of the latest attempt; null while the task waits for a place
    progress: float
    executions_done: int
    waiting_since_s: float | None
    not_before_s: float | None  # earliest time of the next placement; null if it may be placed now
    message: str
    after: list[str]  # tasks of its job that must have succeeded before it is placed
    spans: list[SpanView]  # the oldest first


class JobBar(JobHead):
    """A job and its lanes."""

    progress: float  # mean of its tasks; 1 once it has succeeded
    misses: int  # batch deadlines missed
    interruptions: int  # interruptions within the spans shown, drawn as moments
    reason: str
    cost: CostView
    tasks: int  # number of tasks; `lanes` may have fewer
    tasks_done: int  # number of tasks that have succeeded
    lanes: list[LaneView]


class DecisionLine(View):
    """A decision with the chosen candidate and the next best: `/v1/decisions/ID` has all."""

    decision_id: int
    time_s: float
    job_id: str
    task: str
    policy: str
    mode: Mode
    chosen: str | None  # an offer; null: none for now
    values: Mapping[str, float]  # values of the chosen candidate by component
    reason: str  # why the safety net overruled the policy; "" where it did not
    next_best: str | None  # the available offer after the chosen one in the policy's order; null without one
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

    time_s: float  # the service's clock
    deployment: str
    policy: str
    federated_policy: str | None
    mode: Mode | None  # mode of this process's scheduler, else of the latest decision; null before the first
    scheduler: bool  # whether this process has one; if not, `offers` and `last_pass_s` are not known
    last_pass_s: float | None
    pass_within_s: float  # an older pass means that the scheduler does not work
    counts: dict[JobState, int]
    cost: CostView  # cost of everything so far
    jobs: list[JobBar]
    """This many of each group: running (newest first), waiting (oldest first), ended (newest first)."""
    instances_live: int  # number of live instances; `instances` may have fewer
    instances: list[InstanceView]  # instances that exist or may exist, the newest first
    offers_known: int  # number of offers; `offers` may have fewer
    offers: list[OfferView]
    """As they were in the latest pass: used ones first, then available ones, then by price."""
    decisions: list[DecisionLine]  # the latest, the newest first
    events: list[EventView]  # the latest, the newest first


def _values(candidate: CandidateRecord | None) -> Mapping[str, float]:
    """Values of a policy's candidate; a rule has none, so what it would cost by the rule `expected_cost`."""
    if candidate is None or candidate.values or candidate.expected_usd is None:
        return {} if candidate is None else candidate.values
    return {"expected_usd": candidate.expected_usd}


# `GET /v1/overview`: one moment of the store, and the offers of the scheduler's latest pass.

LANES = 50  # tasks of one job
SPANS = 2000
INSTANCES = 100
OFFERS = 200
DECISIONS = 25
EVENTS = 60


def overview(
    context: Context,
    store: Store,
    scheduler: SchedulerView | None,
    mode: Mode | None,
    limit: int,
    caller: Caller,
) -> Overview:
    """What the dashboard shows.

    `limit` jobs of each group (running, waiting, ended). `mode` None: that of the latest decision.
    `caller` sees only of their own jobs what these say, unless they are an admin.
    """
    now_s = context.clock.now()
    with store.snapshot():
        jobs = _jobs(store, limit)
        decisions = store.decisions.latest(DECISIONS)
        used = store.instances.used()
        offers = [] if scheduler is None else _offers(scheduler, used)
        federated = context.deciders.federated
        return Overview(
            time_s=now_s,
            deployment=store.deployment_id,
            policy=context.deciders.market.policy.name,
            federated_policy=None if federated is None else federated.policy.name,
            mode=decisions[0].mode if mode is None and decisions else mode,
            scheduler=scheduler is not None,
            last_pass_s=None if scheduler is None else scheduler.last_pass_s(),
            pass_within_s=context.settings.pass_within_s,
            counts=store.jobs.counts(),
            cost=CostView.of(store.costs.total(now_s)),
            jobs=_bars(store, jobs, now_s, caller),
            instances_live=sum(used.values()),
            instances=[InstanceView.of(one) for one in store.instances.latest(INSTANCES, live=True)],
            offers_known=len(offers),
            offers=offers[:OFFERS],
            decisions=[DecisionLine.of(one) for one in decisions],
            events=[EventView.of(one, caller) for one in reversed(store.events.latest(EVENTS))],
        )


def _jobs(store: Store, limit: int) -> list[Job]:
    running = store.gantt.jobs(JobState.RUNNING, limit)
    waiting = store.gantt.jobs(JobState.PENDING, limit)
    ended = [job for state in JobState if not state.live for job in store.gantt.jobs(state, limit)]
    ended.sort(key=lambda job: (job.submitted_s, job.job_id), reverse=True)
    return [*running, *waiting, *ended[:limit]]


def _bars(store: Store, jobs: Sequence[Job], now_s: float, caller: Caller) -> list[JobBar]:
    ids = [job.job_id for job in jobs]
    sums, costs = store.gantt.sums(ids), store.costs.of_jobs(ids, now_s)
    tasks = store.gantt.lanes(ids, LANES)
    spans: defaultdict[tuple[str, str], list[SpanView]] = defaultdict(list)
    for span in store.gantt.spans(ids, LANES, SPANS):
        spans[span.key].append(SpanView.of_fields(span))
    return [
        _bar(
            job,
            sums[job.job_id],
            costs[job.job_id],
            _lanes(job, tasks[job.job_id], spans, now_s, caller.may_see(job.submitter)),
            caller,
        )
        for job in jobs
    ]


def _bar(job: Job, sums: Sums, cost: Bill, lanes: list[LaneView], caller: Caller) -> JobBar:
    return JobBar.of_fields(
        job,
        name=job.spec.name,
        kind=job.spec.work.kind,
        deadline_s=deadline_of(job),
        progress=1.0 if job.state is JobState.SUCCEEDED else sums.progress,
        misses=sums.misses,
        interruptions=sum(len(span.interruptions) for lane in lanes for span in lane.spans),
        reason=reason_for(job, caller)[:MAX_TEXT],
        cost=CostView.of(cost),
        tasks=sums.tasks,
        tasks_done=sums.tasks_done,
        lanes=lanes,
    )


def _lanes(
    job: Job,
    tasks: Sequence[Task],
    spans: Mapping[tuple[str, str], list[SpanView]],
    now_s: float,
    whole: bool,
) -> list[LaneView]:
    work = job.spec.work
    after = work.graph() if isinstance(work, Workflow) else {}
    return [
        _lane(task, after.get(task.key.task, ()), spans.get(task.key, []), now_s, whole) for task in tasks
    ]


def _lane(task: Task, after: Sequence[str], spans: list[SpanView], now_s: float, whole: bool) -> LaneView:
    return LaneView.of_fields(
        task,
        task=task.key.task,
        not_before_s=task.not_before_s if task.not_before_s > now_s else None,
        message=task.message[:MAX_TEXT] if whole else hidden_text(task.message),
        after=list(after),
        spans=spans,
    )


def _offers(scheduler: SchedulerView, used: Mapping[str, int]) -> list[OfferView]:
    offers = [OfferView.of_fields(one, used=used.get(one.offer_id, 0)) for one in scheduler.offers()]
    return sorted(offers, key=lambda one: (not one.used, not one.available, one.price_usd_hour, one.offer_id))


KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    # Nothing from elsewhere, no script or style in the page itself, and no other page around it.
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
}


def router(
    context: Context, store: Store, scheduler: SchedulerView | None, mode: Mode | None = None
) -> APIRouter:
    """`/`, its files under `/dashboard/`, and `/v1/overview`.

    The page holds no data, so everyone gets it; what fills it needs a viewer's token where tokens are on.
    """
    # A default, not an annotation: those are read where local names are not known.
    viewer: Any = Depends(context.access.require(Role.VIEWER))
    routes = APIRouter(responses=ERRORS)
    for file in files("spotweave.deploy.dashboard").joinpath("page").iterdir():
        kind = KINDS.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/dashboard/{file.name}"
            routes.add_api_route(
                path,
                partial(_answer, file.read_bytes(), kind),
                methods=["GET"],
                response_class=Response,
                include_in_schema=False,
            )

    @routes.get(
        "/v1/overview",
        tags=["dashboard"],
        response_model=Overview,
        summary="Everything that the dashboard shows, in one answer of bounded size",
    )
    async def everything(
        limit: Annotated[int, Query(ge=1, le=100, description="Jobs of each group")] = 25,
        caller: Caller = viewer,
    ) -> Response:
        # Serialised in the thread too: it is large.
        body = await run_in_threadpool(
            lambda: overview(context, store, scheduler, mode, limit, caller).model_dump_json().encode()
        )
        return Response(body, media_type="application/json")

    return routes


async def _answer(body: bytes, kind: str) -> Response:
    return Response(body, media_type=kind, headers=HEADERS)
