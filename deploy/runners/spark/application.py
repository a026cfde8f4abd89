"""What a running Spark application shows: its monitoring endpoint and, if it is a stream, its event log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import AwareDatetime, BaseModel, Field, FiniteFloat, TypeAdapter, ValidationError

from spotweave.deploy.security.untrusted import open_beneath, plain_files, remove_tree, unlink_beneath
from spotweave.deploy.statefile import StateFile

_log = logging.getLogger(__name__)
# A running driver, as its own monitoring endpoint describes it.
#
# The driver is the job's own code: what it answers is not believed in more than it concerns itself, and
# neither its size nor its pace is left to it.


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


# Batches of a streaming job, counted from the progress that Spark itself writes into its event log.
#
# Every finished micro-batch leaves a QueryProgressEvent there, flushed at once; so none is missed while
# nobody looks, and all can be read after the driver died. Spark's REST endpoints do not report Structured
# Streaming.
#
# The job's own code can write there too. So a look reads a bounded part, follows no link, and what cannot
# be understood counts as no batch.


_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
_LOOK_BYTES = 16 << 20  # read in one look, of all logs together; Spark writes some kB in a batch
_LINE_BYTES = 4 << 20  # a longer line is none of Spark's progress: it is skipped
_MOST_FILES = 100_000  # in the folder; logs beyond them are ignored
_MOST_NAMES = 1000  # most logs in one look, and queries; what exceeds it is ignored
_LOG = re.compile("([0-9]+)/(eventlog_v2_[^/]+)/events_([0-9]+)[^/]*")


class _Durations(BaseModel):
    """Milliseconds."""

    add_batch: Annotated[FiniteFloat | None, Field(alias="addBatch")] = None
    trigger: Annotated[FiniteFloat, Field(alias="triggerExecution", ge=0, le=1e12)] = 0.0


class _Progress(BaseModel):
    id: Annotated[str, Field(max_length=200)]
    batch: Annotated[int, Field(alias="batchId", ge=0, lt=1 << 53)]
    timestamp: AwareDatetime  # of its trigger
    durations: Annotated[_Durations, Field(alias="durationMs")]


class _Event(BaseModel):
    kind: Annotated[str, Field(alias="Event")]
    progress: _Progress


class Batches(StateFile):
    """What is known of a job's batches, over all its attempts."""

    done: int = 0  # of all its queries. A batch that a new attempt had to repeat counts once.
    misses: int = 0  # those that took longer than the deadline
    latest_s: float | None = None  # from the trigger of the latest to its end; None before one
    triggered_s: float | None = None  # epoch seconds of that trigger
    # number of the newest batch of each query, by the query's id, which its checkpoint keeps
    newest: dict[str, int] = Field(default_factory=dict)
    # bytes read of each event log, by its path below the folder
    read: dict[str, int] = Field(default_factory=dict)


class BatchLog:
    """The event logs of one job: `folder/ATTEMPT/eventlog_v2_APPLICATION/events_N_APPLICATION`."""

    def __init__(self, folder: Path, state: Path, deadline_s: float) -> None:
        self._folder, self._state, self._deadline_s = folder, state, deadline_s

    def read(self) -> Batches:
        """Count what has come since the last time. What is counted is on disk before it is told.

        Raises OSError.
        """
        known = self._known()
        batches = known.model_copy(deep=True)
        logs = self._logs()
        left = _LOOK_BYTES
        for log in logs:
            left -= self._read_log(log, batches, left)
        if batches != known:
            batches.save(self._state)
        if left > 0:
            self._remove_old(logs, batches)
        return batches

    def _known(self) -> Batches:
        try:
            return Batches.load(self._state) or Batches()
        except ValidationError:
            _log.error("%s is damaged: batches are counted again from the logs that are left", self._state)
            return Batches()

    def _logs(self) -> list[str]:
        """Paths below the folder, from the oldest to the newest."""
        found: list[tuple[int, str, int, str]] = []
        # There is no folder yet, or it is crowded.
        with suppress(OSError):
            for path, _ in plain_files(self._folder, _MOST_FILES):
                if name := _LOG.fullmatch(path):
                    found.append((int(name[1]), name[2], int(name[3]), path))
        return [path for *_, path in sorted(found)[:_MOST_NAMES]]

    def _read_log(self, log: str, batches: Batches, most: int) -> int:
        """Returns the number of bytes that were read."""
        at = batches.read.get(log, 0)
        try:
            handle = open_beneath(self._folder, log, os.O_RDONLY)
        except OSError:
            return 0
        with os.fdopen(handle, "rb") as file:
            file.seek(at)
            content = file.read(most)
        end = content.rfind(b"\n") + 1
        if not end and len(content) >= _LINE_BYTES:
            end = len(content)
        for line in content[:end].split(b"\n"):
            if _PROGRESS.encode() in line and len(line) < _LINE_BYTES:
                self._count(line, batches)
        if end:
            batches.read[log] = at + end
        return len(content)

    def _count(self, line: bytes, batches: Batches) -> None:
        try:
            event = _Event.model_validate(json.loads(line))
        except (ValueError, RecursionError):
            return
        progress, query = event.progress, event.progress.id
        # Spark also reports from time to time that there was nothing to do.
        if (
            event.kind != _PROGRESS
            or progress.durations.add_batch is None
            or progress.batch <= batches.newest.get(query, -1)
            or (query not in batches.newest and len(batches.newest) >= _MOST_NAMES)
        ):
            return
        batches.newest[query] = progress.batch
        batches.done += 1
        batches.latest_s = progress.durations.trigger / 1000
        batches.triggered_s = progress.timestamp.timestamp()
        batches.misses += batches.latest_s > self._deadline_s

    def _remove_old(self, logs: list[str], batches: Batches) -> None:
        """Without this a job that runs for months fills the disk. The newest is still written."""
        for log in logs[:-1]:
            with suppress(OSError):
                unlink_beneath(self._folder, log)
        newest = int(logs[-1].partition("/")[0]) if logs else 0
        with suppress(FileNotFoundError), os.scandir(self._folder) as found:
            attempts = [entry.name for entry in islice(found, _MOST_NAMES) if entry.name.isdecimal()]
            for attempt in attempts:
                if int(attempt) < newest:
                    remove_tree(self._folder / attempt)
        gone = [log for log in batches.read if not (self._folder / log).exists()]
        if gone:
            for log in gone:
                del batches.read[log]
            batches.save(self._state)
