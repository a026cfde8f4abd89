"""Memory for bodies of requests: so much for all that are read and handled at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import anyio

from deploy.server.errors import Refusal

_LOOK_S = 0.05


class Room:
    """Bytes of bodies. For the thread of an event loop only.

    Args:
        most: of all callers together.
        most_each: of one caller.
        within_s: a body for which there is no room after so long is refused.
    """

    def __init__(self, most: int, most_each: int, within_s: float) -> None:
        self._most = most
        self._most_each = most_each
        self._within_s = within_s
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def take(self, name: str, size: int) -> AsyncIterator[None]:
        """Have room for a body, once there is some.

        Args:
            name: of the caller.
            size: in bytes, at most `most_each`.

        Raises:
            Refusal: if there is none in time.
        """
        end_s = time.monotonic() + self._within_s
        while self._taken[name] + size > self._most_each or self._taken.total() + size > self._most:
            if time.monotonic() >= end_s:
                raise Refusal(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "other large requests are being handled just now: try again soon",
                    {"Retry-After": "5"},
                )
            await anyio.sleep(_LOOK_S)
        self._taken[name] += size
        try:
            yield
        finally:
            self._taken -= Counter({name: size})
