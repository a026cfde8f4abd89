"""The application: which routes there are, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from deploy.model.clock import Clock, SystemClock
from deploy.security.tokens import AccessTokens
from deploy.server import bodies, errors
from deploy.server.access import Access
from deploy.server.context import Context, SchedulerView, ServerSettings
from deploy.server.deciding import Deciders
from deploy.server.middleware import Metrics, Observed
from deploy.server.routes import decisions, events, files, health, jobs
from deploy.server.schemas import DecisionRequest
from deploy.store.store import Store

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

    Without a store it only decides: there are no routes for jobs. Without a scheduler in this process,
    offers are not shown. `/metrics` shows `registry` too; `more_routes` are made of the context.

    Returns:
        The ASGI application. Its `state.context` is the `Context`.

    Raises:
        ValueError: if the settings do not fit: tokens without a store, a store without a folder for jobs.
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
    app.include_router(health.router(context))
    app.include_router(decisions.router(context))
    if store is not None and settings.jobs is not None:
        bodies.sweep(settings.jobs)
        models.append(jobs.JobRequest)
        app.include_router(decisions.stored(context, store))
        app.include_router(jobs.router(context, store, settings.jobs))
        app.include_router(files.router(context, store))
        app.include_router(decisions.market_router(context, store))
        app.include_router(events.router(context, store))
        if scheduler is not None:
            app.include_router(decisions.offers(context, store, scheduler))
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
            for name, schema in bodies.definitions(models).items():
                schemas.setdefault(name, schema)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
