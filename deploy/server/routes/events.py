"""Events: pages of them, and a stream that can be taken up again where it broke."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.access import Caller
from spotweave.deploy.server.context import Context
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.server.views import ERRORS, MAX_NUMBER, EventView, JobFilter, Limit
from spotweave.deploy.store.errors import StoreUnavailableError
from spotweave.deploy.store.store import Store

_PAGE = 500
_RETRY_MS = 2000
Sequence = Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description="The last number that is known")]


class Followers:
    """Streams of events from the store's sequence: this many at once, and of each caller this many."""

    def __init__(self, context: Context, store: Store) -> None:
        self._context, self._store = context, store
        self._open: Counter[str] = Counter()

    @contextmanager
    def place(self, name: str) -> Iterator[None]:
        """Take a place among those who follow. Raises Refusal if there is none left."""
        settings, taken = self._context.settings, self._open.total()
        if taken >= settings.streams:
            raise _full(f"{taken} clients follow events already, which is the most")
        if self._open[name] >= settings.streams_each:
            raise _full(f"{name!r} follows events {self._open[name]} times already, which is the most")
        self._open[name] += 1
        self._context.metrics.followers.inc()
        try:
            yield
        finally:
            self._open -= Counter([name])
            self._context.metrics.followers.dec()

    async def stream(
        self, request: Request, caller: Caller, after: int, job_id: str | None
    ) -> AsyncIterator[bytes]:
        """All events after a number, and then each as it comes."""
        yield f"retry: {_RETRY_MS}\n\n".encode()
        spoke = time.monotonic()
        while not self._context.closing.is_set():
            try:
                page = await run_in_threadpool(self._store.events.after, after, _PAGE, job_id=job_id)
            except StoreUnavailableError:
                return  # the client comes again, with the last number that it saw
            for event in page:
                after = event.sequence
                data = EventView.of(event, caller).model_dump_json()
                yield f"id: {after}\nevent: {''.join(event.kind.split())}\ndata: {data}\n\n".encode()
            if time.monotonic() - spoke >= self._context.settings.heartbeat_s:
                spoke = time.monotonic()
                if not await self._context.access.still_valid(request):
                    return
                yield b": still here\n\n"
            if len(page) < _PAGE:
                await anyio.sleep(self._context.settings.poll_s)


class _Followed(StreamingResponse):
    """A stream that holds a place for exactly as long as it is sent."""

    def __init__(self, followers: Followers, name: str, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._followers, self._name = followers, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A place that were only looked for when the request came could be taken by many at once.
        with self._followers.place(self._name):
            await super().__call__(scope, receive, send)


def _full(why: str) -> Refusal:
    return Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"{why}: read /v1/events instead", {"Retry-After": "30"})


def router(context: Context, store: Store) -> APIRouter:
    """`/v1/events`."""
    followers = Followers(context, store)
    viewer: Any = Depends(context.access.require(Role.VIEWER))
    routes = APIRouter(tags=["events"], responses=ERRORS)

    @routes.get("/v1/events", summary="Events after a number, the oldest first; without one, the latest")
    def events(
        limit: Limit = 100, after: Sequence = None, job_id: JobFilter = None, caller: Caller = viewer
    ) -> list[EventView]:
        if after is None:
            found = store.events.latest(limit, job_id=job_id)
        else:
            found = store.events.after(after, limit, job_id=job_id)
        return [EventView.of(one, caller) for one in found]

    @routes.get(
        "/v1/events/stream",
        summary="Server-sent events: from a number on, or from now on; never ends",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def stream(
        request: Request,
        after: Sequence = None,
        job_id: JobFilter = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=MAX_NUMBER)] = None,
        caller: Caller = viewer,
    ) -> Response:
        known = last_event_id if last_event_id is not None else after
        if known is None:
            known = await run_in_threadpool(store.events.last_sequence)
        return _Followed(followers, caller.name, followers.stream(request, caller, known, job_id))

    return routes
