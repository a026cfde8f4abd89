"""The page, its files, and the request that fills it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from starlette.concurrency import run_in_threadpool

from deploy.billing import Bill
from deploy.dashboard.schemas import MAX_TEXT, DecisionLine, JobBar, LaneView, Overview, SpanView
from deploy.model.jobs import JobState
from deploy.model.workflows import Workflow
from deploy.security.tokens import Role
from deploy.server.access import Caller
from deploy.server.context import Context, SchedulerView
from deploy.server.views import (
    ERRORS,
    CostView,
    EventView,
    InstanceView,
    OfferView,
    deadline_of,
    hidden_text,
    reason_for,
)
from deploy.store.decisions import Mode
from deploy.store.gantt import Sums
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task

# `GET /v1/overview`: one moment of the store, and the offers of the scheduler's latest pass.

LANES = 50
"""Tasks of one job."""
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

    Args:
        context: of the service.
        store: that is shown.
        scheduler: None: there is none in this process.
        mode: of that scheduler; None: of the latest decision.
        limit: jobs of each group (running, waiting, ended).
        caller: sees only of their own jobs what these say, unless they are an admin.
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
            instances=[InstanceView.of(one) for one in store.instances.newest_live(INSTANCES)],
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
        spans[span.key].append(SpanView.of(span))
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
    offers = [OfferView.of(one, used.get(one.offer_id, 0)) for one in scheduler.offers()]
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

    Args:
        context: of the service.
        store: that is shown.
        scheduler: None: there is none in this process.
        mode: of that scheduler; None: that of the latest decision is shown.
    """
    # A default, not an annotation: those are read where local names are not known.
    viewer: Any = Depends(context.access.require(Role.VIEWER))
    routes = APIRouter(responses=ERRORS)
    for file in files("deploy.dashboard").joinpath("page").iterdir():
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
