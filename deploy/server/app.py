"""The application: its routes, those about its health among them, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from spotweave.deploy.model.clock import Clock, SystemClock
from spotweave.deploy.security.tokens import AccessTokens, Role
from spotweave.deploy.server import bodies, errors
from spotweave.deploy.server.access import Access
from spotweave.deploy.server.context import Context, SchedulerView, ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.server.middleware import Metrics, Observed
from spotweave.deploy.server.routes import decisions, events, files, jobs
from spotweave.deploy.server.schemas import DecisionRequest
from spotweave.deploy.server.views import ERRORS, Health, Readiness
from spotweave.deploy.store.errors import StoreError
from spotweave.deploy.store.store import Store


def health_router(context: Context) -> APIRouter:
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


ABOUT = """Which task goes where now, and what runs, happens and costs.

Send an access token as `Authorization: Bearer TOKEN`. A viewer's may read; a submitter's may also ask for
decisions, submit jobs and cancel their own; an admin's may do everything. Every error is `{"error": "..."}`,
one line. Times are epoch seconds, or seconds; money is USD.
"""


def create_app(
    settings: ServerSettings,
    deciders: Deciders,
    store: Store | None = None,
    scheduler: SchedulerView | None = None,
    clock: Clock | None = None,
    registry: CollectorRegistry | None = None,
    more_routes: Sequence[Callable[[Context], APIRouter]] = (),
) -> FastAPI:
    """One service.

    Without a store it only decides: there are no routes for jobs. Without a scheduler in this process, offers
    are not shown. `/metrics` shows `registry` too; `more_routes` are made of the context. Returns the ASGI
    application. Its `state.context` is the `Context`. Raises ValueError if the settings do not fit: tokens
    without a store, a store without a folder for jobs.
    """
    if settings.tokens and store is None:
        raise ValueError(
            "access tokens are kept in the store, and there is none: give a database, or set tokens=False"
        )
    if store is not None and settings.jobs is None:
        raise ValueError("a service with a store takes jobs: set the folder for their files (jobs)")
    clock = clock if clock is not None else SystemClock()
    tokens = AccessTokens(store) if settings.tokens and store is not None else None
    context = Context(settings, clock, deciders, store, scheduler, Access(tokens, clock), Metrics(registry))
    app = FastAPI(
        title="Spotweave",
        version=version("spotweave"),
        description=ABOUT,
        # Their pages load scripts from elsewhere; /openapi.json is enough for clients.
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    models: list[type[BaseModel]] = [DecisionRequest]
    app.include_router(health_router(context))
    app.include_router(decisions.router(context))
    if store is not None and settings.jobs is not None:
        bodies.sweep(settings.jobs)
        models.append(jobs.JobRequest)
        app.include_router(decisions.stored(context, store))
        app.include_router(jobs.router(context, store, settings.jobs))
        app.include_router(files.router(context, store))
        app.include_router(decisions.market_router(context, store, scheduler))
        app.include_router(events.router(context, store))
        if scheduler is not None:
            app.include_router(files.logs(context, store, scheduler))
    for make in more_routes:
        app.include_router(make(context))
    errors.install(app)
    app.add_middleware(Observed, metrics=context.metrics)
    _describe_bodies(app, models)
    return app


def _describe_bodies(app: FastAPI, models: list[type[BaseModel]]) -> None:
    """Bodies are read by our own code, within limits; their schemas are added to what FastAPI knows."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            _, bodily = models_json_schema(
                [(model, "validation") for model in models], ref_template=bodies.REFERENCE
            )
            for name, schema in bodily["$defs"].items():
                schemas.setdefault(name, schema)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
