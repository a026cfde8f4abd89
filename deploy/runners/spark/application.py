"""A running driver, as its own monitoring endpoint describes it.

The driver is the job's own code: what it answers is not believed in more than it concerns itself, and neither
its size nor its pace is left to it.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, Field, TypeAdapter

ATTEMPT_CONF = "spark.spotweave.attempt"  # in every application's conf: which attempt it is
_TOTAL_S = 2.0  # for all questions to one driver in one look
_ANSWER_BYTES = 8 << 20
_PORT_RETRIES = 16  # Spark tries this many further ports where its own is taken (spark.port.maxRetries)
_PAUSE_S = 5.0
_PAUSE_MOST_S = 60.0
_MOST = 10_000

_Count = Annotated[int, Field(ge=0, lt=1 << 53)]
_Text = Annotated[str, Field(max_length=200)]


class _Executor(BaseModel):
    id: _Text
    host_port: Annotated[_Text, Field(alias="hostPort")]
    active: Annotated[bool, Field(alias="isActive")]


class _Job(BaseModel):
    tasks: Annotated[_Count, Field(alias="numTasks")]
    skipped: Annotated[_Count, Field(alias="numSkippedTasks")]
    completed: Annotated[_Count, Field(alias="numCompletedTasks")]
    failed: Annotated[_Count, Field(alias="numFailedTasks")]


class _Named(BaseModel):
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]


class _Environment(BaseModel):
    properties: Annotated[list[tuple[str, str]], Field(alias="sparkProperties")]


_EXECUTORS = TypeAdapter(Annotated[list[_Executor], Field(max_length=_MOST)])
_JOBS = TypeAdapter(Annotated[list[_Job], Field(max_length=_MOST)])
_APPLICATIONS = TypeAdapter(Annotated[list[_Named], Field(max_length=10)])


@dataclass(frozen=True)
class Application:
    """Report of a driver about its application."""

    url: str
    app_id: str  # of Spark
    executors: tuple[str, ...]  # addresses of those that it has now
    tasks_done: int  # of all jobs that it knows
    tasks: int  # of all jobs that it knows; a script may add jobs at any time
    failed_tasks: int  # that were tried again

    @property
    def progress(self) -> float:
        """Share of the known tasks that is done. Below 1: only the driver's end shows that no job follows."""
        return min(0.99, self.tasks_done / self.tasks) if self.tasks else 0.0


class Applications:
    """Finds the endpoint of an attempt's driver, and asks it. Safe to use from several threads."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, str]] = {}
        self._pauses: dict[str, tuple[float, float]] = {}

    def ask(self, attempt_id: str, address: str, port: int) -> Application | None:
        """The application of an attempt, whose driver was to take this port; None if it does not answer.

        It takes two seconds at most. A driver that lets them pass is left alone for a while.
        """
        until_s, pause_s = self._pauses.get(attempt_id, (0.0, _PAUSE_S))
        if time.monotonic() < until_s:
            return None
        try:
            found = asyncio.run(asyncio.wait_for(self._ask(attempt_id, address, port), _TOTAL_S))
        except TimeoutError:
            self._pauses[attempt_id] = (time.monotonic() + pause_s, min(_PAUSE_MOST_S, 2 * pause_s))
            return None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
            # While it starts, a driver answers with a page instead of JSON; later, it may be another's port.
            self._places.pop(attempt_id, None)
            return None
        self._pauses.pop(attempt_id, None)
        return found

    def forget(self, attempt_id: str) -> None:
        """Forget an attempt that has ended."""
        self._places.pop(attempt_id, None)
        self._pauses.pop(attempt_id, None)

    async def _ask(self, attempt_id: str, address: str, port: int) -> Application | None:
        # Plain HTTP: reading the machine's certificates would take longer than to ask.
        async with httpx.AsyncClient(timeout=None, trust_env=False, verify=False) as client:
            place = self._places.get(attempt_id) or await _find(client, attempt_id, address, port)
            if place is None:
                return None
            url, app_id = place
            root = f"{url}/api/v1/applications/{app_id}"
            executors, jobs = await _get(client, f"{root}/executors"), await _get(client, f"{root}/jobs")
        self._places[attempt_id] = place
        return parse(url, app_id, executors, jobs)


async def _find(
    client: httpx.AsyncClient, attempt_id: str, address: str, port: int
) -> tuple[str, str] | None:
    for candidate in range(port, port + _PORT_RETRIES + 1):
        url = f"http://{address}:{candidate}/api/v1/applications"
        try:
            for application in _APPLICATIONS.validate_python(await _get(client, url)):
                found = await _get(client, f"{url}/{application.id}/environment")
                if (ATTEMPT_CONF, attempt_id) in _Environment.model_validate(found).properties:
                    return url.removesuffix("/api/v1/applications"), application.id
        except (httpx.HTTPError, ValueError, RecursionError):
            continue
    return None


async def _get(client: httpx.AsyncClient, url: str) -> Any:
    # Unpacked, a small answer could be any size.
    async with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
        answer.raise_for_status()
        content = bytearray()
        async for piece in answer.aiter_raw():
            content += piece
            if len(content) > _ANSWER_BYTES:
                raise ValueError(f"{url} answers with more than {_ANSWER_BYTES} bytes")
    return json.loads(content)


def parse(url: str, app_id: str, executors: Any, jobs: Any) -> Application:
    """Parse the answers of `/executors` and `/jobs`. Raises ValidationError if they are malformed."""
    them, all_jobs = _EXECUTORS.validate_python(executors), _JOBS.validate_python(jobs)
    wanted = [max(0, job.tasks - job.skipped) for job in all_jobs]
    return Application(
        url=url,
        app_id=app_id,
        executors=tuple(
            found.host_port.rpartition(":")[0] for found in them if found.active and found.id != "driver"
        ),
        tasks_done=sum(min(job.completed, tasks) for job, tasks in zip(all_jobs, wanted, strict=True)),
        tasks=sum(wanted),
        failed_tasks=sum(job.failed for job in all_jobs),
    )
