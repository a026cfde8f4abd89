"""What a job's programs print and leave: its logs and the files in its folder. All of it may be hostile."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.security.untrusted import is_plain_path, open_beneath, plain_files
from spotweave.deploy.server.access import Caller, not_theirs
from spotweave.deploy.server.bodies import MANIFEST, UploadError, sent_names
from spotweave.deploy.server.context import Context, SchedulerView
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.server.views import ERRORS, FilesView, FileView, JobId
from spotweave.deploy.store.errors import NotFoundError
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.mistakes import harmless, some_of

PIECE_BYTES = 1 << 20  # most of a log in one answer
LINES_MOST = 10_000
FILES_MOST = 10_000
_THREADS = 4  # a log may be on a node that does not answer: others are not kept waiting for it
_CHUNK_BYTES = 1 << 18
_TASK = r"^[a-z0-9-]{1,80}$"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def _own(store: Store, job_id: str, caller: Caller) -> Job:
    """A job of the caller's, or any for an admin."""
    job = store.jobs.get(job_id)
    if not caller.may_see(job.submitter):
        raise not_theirs(job, "see its logs and files")
    return job


def logs(context: Context, store: Store, scheduler: SchedulerView) -> APIRouter:
    """`/v1/jobs/ID/logs`."""
    viewer: Any = Depends(context.access.require(Role.VIEWER))
    routes, threads = APIRouter(tags=["jobs"], responses=ERRORS), CapacityLimiter(_THREADS)
    told = {
        name: {"schema": {"type": "string"}, "description": about}
        for name, about in {
            "X-Log-Task": "Whose log it is",
            "X-Log-Attempt": "Of which attempt; 0: none has begun",
            "X-Log-Attempts": "How many there were",
            "X-Log-Next": "`after` of the next request for what follows",
            "X-Log-More": "yes: more is there already",
            "X-Log-Ended": "What has ended, so that no more comes: no, attempt, job",
        }.items()
    }

    @routes.get(
        "/v1/jobs/{job_id}/logs",
        response_class=PlainTextResponse,
        responses={200: {"headers": told}},
        summary="What a task of a job has printed; control characters are shown as pictures",
    )
    async def log(
        job_id: JobId,
        task: Annotated[
            str | None, Query(pattern=_TASK, description="`server` of a Flower job; else the first")
        ] = None,
        attempt: Annotated[int | None, Query(ge=1, description="Else the latest")] = None,
        tail: Annotated[
            int | None, Query(ge=0, le=LINES_MOST, description="Only so many of the last lines")
        ] = None,
        after: Annotated[int, Query(ge=0, lt=1 << 60, description="From this byte on")] = 0,
        caller: Caller = viewer,
    ) -> Response:
        find = partial(_log, store, scheduler, job_id, task, attempt, tail, after, caller)
        return await run_sync(find, limiter=threads)

    return routes


def _log(
    store: Store,
    scheduler: SchedulerView,
    job_id: str,
    name: str | None,
    attempt: int | None,
    tail: int | None,
    after: int,
    caller: Caller,
) -> Response:
    job = _own(store, job_id, caller)
    names = job.spec.work.logs
    name = names[0] if name is None else name
    if name not in names:
        raise Refusal(HTTPStatus.NOT_FOUND, f"job {job_id} has no task {name!r}: it has {some_of(names, 5)}")
    attempts, ended = _attempts(store, job, name)
    attempt = attempts if attempt is None else attempt
    if attempt > attempts:
        raise Refusal(
            HTTPStatus.NOT_FOUND,
            f"{name} of job {job_id} has had no attempt {attempt}: its latest is {attempts}",
        )
    content, end = b"", 0
    if attempt:
        offset = after if tail is None else -PIECE_BYTES
        try:
            content, end = scheduler.log(job, name, attempt, offset, PIECE_BYTES)
        except ValueError as error:
            raise Refusal(HTTPStatus.NOT_FOUND, f"the log of {name} of job {job_id}: {error}") from error
    whole = len(content) < PIECE_BYTES
    # A character may be cut in two here: its beginning is left to the next answer.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = harmless(decoder.decode(content))
    end -= len(decoder.getstate()[0])
    if tail is not None:
        text = _last_lines(text, tail, cut=not whole)
    over = "job" if not job.state.live else "attempt" if ended or attempt < attempts else "no"
    headers = {
        "X-Log-Task": name,
        "X-Log-Attempt": str(attempt),
        "X-Log-Attempts": str(attempts),
        "X-Log-Next": str(end),
        "X-Log-More": "no" if whole or tail is not None else "yes",
        "X-Log-Ended": over,
    }
    return PlainTextResponse(text, headers=headers)


def _attempts(store: Store, job: Job, name: str) -> tuple[int, bool]:
    try:
        task = store.tasks.get(TaskKey(job.job_id, name))
    except NotFoundError:
        # A training's server has one log for all of them.
        return 1, False
    return task.attempt, task.phase is None or task.phase.ended


def _last_lines(text: str, count: int, *, cut: bool) -> str:
    lines = _LINE.findall(text)
    # What does not begin at the beginning may begin in the middle of a line.
    return "".join(lines[1 if cut and len(lines) > 1 else 0 :][-count:] if count else [])


# The files.


def router(context: Context, store: Store) -> APIRouter:
    """`/v1/jobs/ID/files`."""
    viewer: Any = Depends(context.access.require(Role.VIEWER))
    routes, threads = APIRouter(tags=["jobs"], responses=ERRORS), CapacityLimiter(_THREADS)

    @routes.get("/v1/jobs/{job_id}/files", summary="The files that a job has left in its folder")
    async def files(job_id: JobId, caller: Caller = viewer) -> FilesView:
        return await run_sync(lambda: _files(_own(store, job_id, caller)), limiter=threads)

    @routes.get(
        "/v1/jobs/{job_id}/files/{path:path}", response_class=StreamingResponse, summary="One of these files"
    )
    def file(job_id: JobId, path: str, caller: Caller = viewer) -> Response:
        job = _own(store, job_id, caller)
        try:
            if not is_plain_path(path) or path == MANIFEST:
                raise FileNotFoundError
            handle = open_beneath(Path(job.workdir), path, os.O_RDONLY)
        except (OSError, ValueError) as error:
            raise Refusal(
                HTTPStatus.NOT_FOUND, f"job {job_id} has no file {path[:200]!r} that can be read"
            ) from error
        opened = os.fdopen(handle, "rb")
        return StreamingResponse(
            _chunks(opened, os.fstat(handle).st_size), media_type="application/octet-stream"
        )

    return routes


def _files(job: Job) -> FilesView:
    folder = Path(job.workdir)
    try:
        found = [FileView(path=path, size=size) for path, size in plain_files(folder, FILES_MOST)]
    except FileNotFoundError as error:
        raise Refusal(HTTPStatus.NOT_FOUND, f"the files of job {job.job_id} are not kept any more") from error
    except OSError as error:
        raise Refusal(
            HTTPStatus.CONFLICT, f"the files of job {job.job_id} cannot be listed: {error}"
        ) from error
    try:
        sent = set(sent_names(folder)) | {MANIFEST}
    except UploadError:
        # The job has spoilt the list of what came with it: then all there is is shown.
        sent = {MANIFEST}
    found = [one for one in found if one.path not in sent and not _in_progress(one.path)]
    return FilesView(files=sorted(found, key=lambda one: one.path))


def _in_progress(path: str) -> bool:
    """Whether a file is the runners' own: a checkpoint of Spark's, a file that is being moved or written."""
    parts = path.split("/")
    return parts[0] == "checkpoint" or (
        parts[0] == "workspace" and (parts[1:2] == ["moving"] or parts[2:3] == ["attempts"])
    )


def _chunks(file: BinaryIO, left: int) -> Iterator[bytes]:
    """A file up to the size that it had: a program may still write to it."""
    with file:
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk
