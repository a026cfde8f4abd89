"""Jobs: submit, list, look, explain, cancel."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import structlog
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from spotweave.deploy.model.jobs import SERVER, JobSpec, JobState
from spotweave.deploy.scheduler.retries import end_job
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server import bodies
from spotweave.deploy.server.access import Caller, not_theirs
from spotweave.deploy.server.admission import WINDOW_S, AdmissionError, admit
from spotweave.deploy.server.bodies import Room, Staged, UploadError
from spotweave.deploy.server.context import Context
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.server.views import (
    ERRORS,
    REQUEST_ID,
    CostView,
    DecisionView,
    EventView,
    Explanation,
    JobId,
    JobPrefix,
    JobSummary,
    JobView,
    Limit,
    TaskView,
    hidden_spec,
)
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store

log = structlog.get_logger("server")

_EXPLAINED = 50
JOB_EXAMPLE: dict[str, Any] = {
    "spec": {
        "name": "wordcount",
        "work": {"kind": "spark-batch", "script": "wordcount.py", "args": ["100"], "deadline_s": 900.0},
        "resources": {"instances": 2, "vcpus": 1, "memory_gib": 1.0},
    },
    "files": {"wordcount.py": "cHJpbnQoIm9uZSB0d28gdHdvIikK"},
    "request_id": "0f8fad5b",
}


class JobRequest(BaseModel):
    """A job and all files that it needs."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra={"examples": [JOB_EXAMPLE]}
    )

    spec: JobSpec
    files: dict[Annotated[str, Field(min_length=1, max_length=1000)], str] = Field(default_factory=dict)
    """Content in base64 by path, relative to the job's folder."""
    request_id: Annotated[str, Field(pattern=REQUEST_ID)] | None = None
    """The submitter's own name for this request: sent again, it gives the same job."""


class Submissions:
    """Takes jobs."""

    def __init__(self, context: Context, store: Store, jobs: Path) -> None:
        self._context, self._store, self._jobs = context, store, jobs
        self._quotas = context.settings.quotas

    def submit(self, body: bytes, caller: Caller) -> tuple[Job, bool]:
        """Keep a job and its files, or refuse it and keep nothing. Returns the job, and whether it is new."""
        return self._accept(bodies.parse(JobRequest, body), caller)

    def retry(self, job_id: str, request_id: str | None, caller: Caller) -> tuple[Job, bool]:
        """Submit a job that has ended once more, with the files that came with it, as the caller's.

        Returns as `submit`.
        """
        job = self._store.jobs.get(job_id)
        if not caller.may_see(job.submitter):
            raise not_theirs(job, "can retry it")
        if job.state.live:
            raise Refusal(
                HTTPStatus.CONFLICT, f"job {job_id} is {job.state}: wait for its end, or cancel it first"
            )
        try:
            files = bodies.sent_files(Path(job.workdir), self._context.settings.job_bytes)
        except UploadError as error:
            raise Refusal(HTTPStatus.CONFLICT, f"job {job_id} cannot be retried: {error}") from error
        request = JobRequest(spec=job.spec, files=files, request_id=request_id)
        return self._accept(request, caller, retry_of=job_id)

    def _accept(self, request: JobRequest, caller: Caller, **about: str) -> tuple[Job, bool]:
        spec, files = request.spec, request.files
        most = self._context.settings.job_files
        try:
            if len(files) > most:
                raise UploadError(f"{len(files)} files came with the job: expected at most {most}")
            bodies.check_names(files)
            bodies.require_program(spec, files)
            self._refuse_beyond(request, caller)
            if self._context.scheduler is not None:
                admit(spec, self._context.scheduler.offers())
            job_id = f"{spec.name}-{secrets.token_hex(5)}"
            staged = Staged(self._jobs, job_id, files)
        except (UploadError, AdmissionError) as error:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except OSError as error:
            raise _no_room(error) from error
        try:
            self._check(spec, staged)
            return self._keep(job_id, request, staged, caller, about, self._mapping(spec))
        except OSError as error:
            staged.discard()
            raise _no_room(error) from error
        except BaseException:
            staged.discard()
            raise

    def _refuse_beyond(self, request: JobRequest, caller: Caller) -> None:
        """Refuse what is too much before it is written; what was asked for before is not too much."""
        if self._store.folders.asked_before(caller.name, request.request_id):
            return
        size = bodies.size_of(request.files)
        self._quotas.refuse_full(self._jobs, size)
        self._refuse_more(caller, size)

    def _refuse_more(self, caller: Caller, size: int) -> None:
        now_s = self._context.clock.now()
        self._quotas.refuse_beyond(self._store.folders.held(caller.name, now_s - WINDOW_S), size, now_s)

    def _check(self, spec: JobSpec, staged: Staged) -> None:
        if self._context.scheduler is None:
            return
        try:
            self._context.scheduler.check(spec, str(staged.folder))
        except ValueError as error:
            # The staged folder is a name of this moment, and not the submitter's.
            message = str(error).replace(f"{staged.folder}/", "").replace(str(staged.folder), "the job")
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, message) from error
        except Exception as error:
            # It reads files that somebody else wrote; what is in them must not look like a fault of ours.
            log.warning("a job's files cannot be checked", error=repr(error)[:300])
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"the job's files cannot be checked ({type(error).__name__}): correct those that describe it",
            ) from error

    def _mapping(self, spec: JobSpec) -> dict[str, Json] | None:
        """Where the tasks of a training with a placed server would be best; None for other jobs."""
        if self._context.scheduler is None or spec.work.kind != "flower" or SERVER not in spec.tasks:
            return None
        # Here: its solver is loaded for such jobs only.
        from spotweave.deploy.server.mapping import initial_mapping

        return initial_mapping(spec, self._context.scheduler.offers())

    def _keep(
        self,
        job_id: str,
        request: JobRequest,
        staged: Staged,
        caller: Caller,
        about: Mapping[str, str],
        mapping: dict[str, Json] | None,
    ) -> tuple[Job, bool]:
        now_s = self._context.clock.now()
        with self._store.transaction():
            if not self._store.folders.asked_before(caller.name, request.request_id):
                # Others of the same submitter may have come in between.
                self._refuse_more(caller, staged.size)
            job = self._store.jobs.add(
                Job(
                    job_id=job_id,
                    spec=request.spec,
                    state=JobState.PENDING,
                    submitted_s=now_s,
                    workdir=staged.workdir,
                    submitter=caller.name,
                    request_id=request.request_id,
                )
            )
            if job.job_id == job_id:
                self._store.events.add(
                    "job.submitted",
                    now_s,
                    {"name": job.spec.name, "kind": job.spec.work.kind, "submitter": caller.name, **about},
                    job_id=job_id,
                )
                if mapping is not None:
                    self._store.events.add("job.mapped", now_s, mapping, job_id=job_id)
                self._store.folders.add(job_id, caller.name, staged.size)
                # The folder is there before the job is: a crash in between leaves a folder, not a broken job.
                staged.accept()
        if job.job_id == job_id:
            return job, True
        same = staged.same_as(job.workdir)
        staged.discard()
        if not same:
            raise Refusal(
                HTTPStatus.CONFLICT,
                f"request {request.request_id!r} submitted other files before ({job.job_id}): "
                "use a new request id for each job",
            )
        return job, False

    def cancel(self, job_id: str, caller: Caller) -> Job:
        """End a job and all that runs for it. Repeating it changes nothing."""
        job = self._store.jobs.get(job_id)
        if not caller.may_change(job.submitter):
            raise not_theirs(job, "can cancel it")
        now_s = self._context.clock.now()
        end_job(self._store, job_id, JobState.CANCELLED, now_s, f"cancelled by {caller.name}")
        job = self._store.jobs.get(job_id)
        if job.state is not JobState.CANCELLED:
            raise Refusal(HTTPStatus.CONFLICT, f"job {job_id} has {job.state} already: nothing to cancel")
        return job


def _no_room(error: OSError) -> Refusal:
    return Refusal(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"the service cannot keep the job's files: {error.strerror or 'error of the disk'}; see its disk",
    )


def router(context: Context, store: Store, jobs: Path) -> APIRouter:
    """`/v1/jobs`."""
    submissions = Submissions(context, store, jobs)
    settings = context.settings
    each = max(settings.job_bytes, settings.bodies_bytes // 2)
    room = Room(max(each, settings.bodies_bytes), each, settings.body_within_s)
    # A default, not an annotation: those are read where local names are not known.
    viewer: Any = Depends(context.access.require(Role.VIEWER))
    submitter: Any = Depends(context.access.require(Role.SUBMITTER))
    routes = APIRouter(tags=["jobs"], responses=ERRORS)

    def view(job: Job, caller: Caller) -> JobView:
        whole = caller.may_see(job.submitter)
        with store.snapshot():
            tasks = store.tasks.of_job(job.job_id)
            cost = store.costs.of_job(job.job_id, context.clock.now())
            sums = store.gantt.sums([job.job_id])[job.job_id]
        return JobView(
            **JobSummary.of(job, sums, caller).model_dump(),
            spec=job.spec if whole else hidden_spec(job.spec),
            user_failures=job.user_failures,
            tasks=[TaskView.of(task, whole) for task in tasks],
            cost=CostView.of(cost),
        )

    @routes.get("/v1/jobs", summary="The latest jobs, the newest first")
    def latest(
        limit: Limit = 100,
        state: Annotated[list[JobState] | None, Query(description="Only in these states")] = None,
        prefix: JobPrefix = None,
        caller: Caller = viewer,
    ) -> list[JobSummary]:
        with store.snapshot():
            found = store.jobs.latest(limit, state, prefix)
            sums = store.gantt.sums([job.job_id for job in found])
        return [JobSummary.of(job, sums[job.job_id], caller) for job in found]

    @routes.post(
        "/v1/jobs",
        status_code=HTTPStatus.CREATED,
        openapi_extra=bodies.described(JobRequest, {"a Spark job": JOB_EXAMPLE}),
        responses={200: {"model": JobView, "description": "The same request had submitted it before."}},
        summary="Submit a job with its files",
    )
    async def submit(request: Request, response: Response, caller: Caller = submitter) -> JobView:
        size = bodies.expected_size(request, settings.job_bytes)
        async with room.take(caller.name, size):
            body = await bodies.read_body(request, settings.job_bytes, settings.body_within_s)
            job, new = await run_in_threadpool(submissions.submit, body, caller)
        response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
        return await run_in_threadpool(view, job, caller)

    @routes.post(
        "/v1/jobs/{job_id}/retry",
        status_code=HTTPStatus.CREATED,
        responses={200: {"model": JobView, "description": "The same request had submitted it before."}},
        summary="Submit a job that has ended once more, as a new job",
    )
    async def retry(
        job_id: JobId,
        response: Response,
        request_id: Annotated[
            str | None, Query(pattern=REQUEST_ID, description="Sent again, it gives the same job")
        ] = None,
        caller: Caller = submitter,
    ) -> JobView:
        async with room.take(caller.name, settings.job_bytes):
            job, new = await run_in_threadpool(submissions.retry, job_id, request_id, caller)
        response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
        return await run_in_threadpool(view, job, caller)

    @routes.get("/v1/jobs/{job_id}", summary="One job, its tasks and its cost")
    def one(job_id: JobId, caller: Caller = viewer) -> JobView:
        return view(store.jobs.get(job_id), caller)

    @routes.delete("/v1/jobs/{job_id}", summary="Cancel a job")
    async def cancel(job_id: JobId, caller: Caller = submitter) -> JobView:
        # An admin ends what overloads the service: that does not queue behind it.
        limiter = context.urgent if caller.role is Role.ADMIN else None
        return await run_sync(lambda: view(submissions.cancel(job_id, caller), caller), limiter=limiter)

    @routes.get("/v1/jobs/{job_id}/explain", summary="Why a job is where it is: decisions, events")
    def explain(job_id: JobId, caller: Caller = viewer) -> Explanation:
        job = store.jobs.get(job_id)
        return Explanation(
            job=view(job, caller),
            decisions=[DecisionView.of(one) for one in store.decisions.latest(_EXPLAINED, job_id=job_id)],
            events=[EventView.of(one, caller) for one in store.events.latest(_EXPLAINED, job_id=job_id)],
        )

    return routes
