"""Decisions, on request and those taken, and what they are about: offers, instances, costs."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from spotweave.deploy.billing import Bill
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server import bodies
from spotweave.deploy.server.access import Caller
from spotweave.deploy.server.bodies import Room
from spotweave.deploy.server.context import Context, SchedulerView
from spotweave.deploy.server.deciding import RequestError
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.server.schemas import DECISION_EXAMPLE, DecisionRequest, DecisionResponse
from spotweave.deploy.server.views import (
    ERRORS,
    MAX_NUMBER,
    CostsView,
    CostView,
    DecisionView,
    InstanceView,
    JobFilter,
    Limit,
    OfferView,
)
from spotweave.deploy.store.costs import Grouping
from spotweave.deploy.store.store import Store

_AT_ONCE = 16  # concurrent requests with the largest bodies


def router(context: Context) -> APIRouter:
    """`POST /v1/decisions`."""
    routes = APIRouter(tags=["decisions"], responses=ERRORS)
    settings, metrics = context.settings, context.metrics
    # A default, not an annotation: those are read where local names are not known.
    submitter: Any = Depends(context.access.require(Role.SUBMITTER))
    most = _AT_ONCE * settings.decision_bytes
    room = Room(most, most // 2, settings.body_within_s)

    def answer(body: bytes) -> bytes:
        request = bodies.parse(DecisionRequest, body)
        began = time.perf_counter()
        try:
            response = context.deciders.answer(request)
        except RequestError as error:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        metrics.decision_s.observe(time.perf_counter() - began)
        for decision in response.decisions:
            metrics.decisions.labels(decision.kind, "none" if decision.offer_id is None else "offer").inc()
            if decision.net:
                metrics.net.inc()
        return response.model_dump_json().encode()

    @routes.post(
        "/v1/decisions",
        response_model=DecisionResponse,
        openapi_extra=bodies.described(
            DecisionRequest,
            {
                "two offers, one task": DECISION_EXAMPLE,
                "money counts double": {**DECISION_EXAMPLE, "weights": {"money": 2.0}},
            },
        ),
        summary="Which task goes where now, and what every place is worth",
    )
    async def decide(request: Request, caller: Caller = submitter) -> Response:
        size = bodies.expected_size(request, settings.decision_bytes)
        async with room.take(caller.name, size):
            body = await bodies.read_body(request, settings.decision_bytes, settings.body_within_s)
            return Response(await run_in_threadpool(answer, body), media_type="application/json")

    return routes


def stored(context: Context, store: Store) -> APIRouter:
    """`GET /v1/decisions`."""
    routes = APIRouter(
        tags=["decisions"], dependencies=[Depends(context.access.require(Role.VIEWER))], responses=ERRORS
    )

    @routes.get("/v1/decisions", summary="The latest decisions of the scheduler, the newest first")
    def latest(limit: Limit = 50, job_id: JobFilter = None) -> list[DecisionView]:
        return [DecisionView.of(one) for one in store.decisions.latest(limit, job_id=job_id)]

    @routes.get("/v1/decisions/{decision_id}", summary="One decision with all its candidates")
    def one(decision_id: Annotated[int, Path(ge=1, le=MAX_NUMBER)]) -> DecisionView:
        return DecisionView.of(store.decisions.get(decision_id))

    return routes


def market_router(context: Context, store: Store, scheduler: SchedulerView | None) -> APIRouter:
    """`/v1/instances` and `/v1/costs`; with a scheduler in this process also `/v1/offers`."""
    routes = APIRouter(
        tags=["market"], dependencies=[Depends(context.access.require(Role.VIEWER))], responses=ERRORS
    )

    @routes.get("/v1/instances", summary="Those that exist, or may; or all of a job; or the latest")
    def instances(
        limit: Limit = 1000,
        job_id: JobFilter = None,
        ended: Annotated[bool, Query(description="Also those that have ended, the newest first")] = False,
    ) -> list[InstanceView]:
        if job_id is not None:
            found = [one for one in store.instances.of_job(job_id) if ended or one.state.live]
        else:
            found = list(store.instances.latest(limit) if ended else store.instances.live())
        return [InstanceView.of(one) for one in found[:limit]]

    @routes.get("/v1/costs", summary="What the latest of a kind, and everything, have cost so far")
    def costs(by: Grouping = Grouping.JOB, limit: Limit = 1000) -> CostsView:
        now_s = context.clock.now()
        with store.snapshot():
            groups, total = store.costs.latest(by, limit, now_s), store.costs.total(now_s)
        listed = sum(groups.values(), Bill())
        return CostsView(
            by=by,
            groups={name: CostView.of(bill) for name, bill in groups.items()},
            others=None if listed == total else CostView.of(total - listed),
            total=CostView.of(total),
        )

    if scheduler is not None:

        @routes.get("/v1/offers", summary="What can be rented, as it was in the scheduler's latest pass")
        def all_offers() -> list[OfferView]:
            used = store.instances.used()
            return [OfferView.of_fields(one, used=used.get(one.offer_id, 0)) for one in scheduler.offers()]

    return routes
