"""Whether the service lives and can work, and its metrics."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from deploy.security.tokens import Role
from deploy.server.context import Context
from deploy.server.errors import Refusal
from deploy.server.views import ERRORS, Health, Readiness
from deploy.store.errors import StoreError


def router(context: Context) -> APIRouter:
    """`/healthz` and `/readyz` for everyone, `/metrics` for viewers."""
    routes = APIRouter(tags=["health"], responses=ERRORS)

    @routes.get("/healthz", summary="The process answers")
    async def healthz() -> Health:
        return Health()

    @routes.get("/readyz", summary="It can do its work: the store answers, the scheduler makes its passes")
    def readyz() -> Readiness:
        last_pass_s = None if context.scheduler is None else context.scheduler.last_pass_s()
        if context.store is not None:
            try:
                context.store.check()
            except StoreError as error:
                # The message names the database, and everyone may ask this.
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE, "not ready: the store cannot be used; see the log"
                ) from error
        if context.scheduler is not None:
            age_s = None if last_pass_s is None else context.clock.now() - last_pass_s
            if age_s is None or age_s > context.settings.pass_within_s:
                ended = "has not ended yet" if age_s is None else f"ended {age_s:.0f} s ago"
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"not ready: the scheduler's latest pass {ended}, expected within "
                    f"{context.settings.pass_within_s:g} s; see the log",
                )
        federated = context.deciders.federated
        return Readiness(
            policy=context.deciders.market.policy.name,
            federated_policy=None if federated is None else federated.policy.name,
            store=context.store is not None,
            scheduler=context.scheduler is not None,
            last_pass_s=last_pass_s,
        )

    @routes.get(
        "/metrics",
        dependencies=[Depends(context.access.require(Role.VIEWER))],
        summary="For Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def metrics() -> Response:
        return Response(generate_latest(context.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return routes
