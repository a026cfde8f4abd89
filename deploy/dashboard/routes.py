"""The page, its files, and the request that fills it."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from starlette.concurrency import run_in_threadpool

from deploy.dashboard.overview import overview
from deploy.dashboard.schemas import Overview
from deploy.security.roles import Role
from deploy.server.access import Caller
from deploy.server.context import Context, SchedulerView
from deploy.server.views import ERRORS
from deploy.store.decisions import Mode
from deploy.store.store import Store

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
