"""Decisions: on request, and those that the scheduler has taken."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from deploy.security.tokens import Role
from deploy.server import bodies
from deploy.server.access import Caller
from deploy.server.bodies import Room
from deploy.server.context import Context
from deploy.server.deciding import RequestError
from deploy.server.errors import Refusal
from deploy.server.schemas import DECISION_EXAMPLE, DecisionRequest, DecisionResponse
from deploy.server.views import ERRORS, MAX_NUMBER, DecisionView, JobFilter, Limit
from deploy.store.store import Store

_AT_ONCE = 16
"""Concurrent requests with the largest bodies."""


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
        tags=["decisions"],
        dependencies=[Depends(context.access.require(Role.VIEWER))],
        responses=ERRORS,
    )

    @routes.get("/v1/decisions", summary="The latest decisions of the scheduler, the newest first")
    def latest(limit: Limit = 50, job_id: JobFilter = None) -> list[DecisionView]:
        return [DecisionView.of(one) for one in store.decisions.latest(limit, job_id=job_id)]

    @routes.get("/v1/decisions/{decision_id}", summary="One decision with all its candidates")
    def one(decision_id: Annotated[int, Path(ge=1, le=MAX_NUMBER)]) -> DecisionView:
        return DecisionView.of(store.decisions.get(decision_id))

    return routes
