"""The client of a service: `spotweave.Client` of programs, and what the commands use."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import secrets
import shutil
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, cast
from urllib.parse import quote

import httpx

from spotweave.deploy.jobfile import read_files, read_job
from spotweave.deploy.security.keys import is_loopback, require_private
from spotweave.deploy.security.untrusted import is_plain_path
from spotweave.mistakes import say

DEFAULT_SERVER = "http://127.0.0.1:8421"
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_AGAIN_S = 2.0
_POLL_S = 1.0
_GIVE_UP_S = 600.0
_TURN_MOST_S = 300.0
_SHOWN = 3
_sleep = time.sleep
_log = logging.getLogger(__name__)


class ServiceError(ValueError):
    """The service refuses a request, in its own words. `status` is HTTP's, or None if no service answered."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(ServiceError):
    """No service answers; one may later."""


class Cost(TypedDict):
    """What something has cost so far, in USD."""

    usd: float
    disk_usd: float
    egress_usd: float
    on_demand_usd: float
    instance_seconds: int


class JobSummary(TypedDict):
    """A job in a list. Moments are epoch seconds."""

    job_id: str
    name: str
    kind: str
    state: Literal["pending", "running", "succeeded", "failed", "cancelled"]
    submitter: str
    submitted_s: float
    ended_s: float | None
    deadline_s: float | None
    misses: int
    reason: str
    tasks_done: int
    tasks_all: int


class Job(JobSummary):
    """A job, its spec as it was submitted, its tasks and its cost."""

    spec: dict[str, Any]
    user_failures: int
    tasks: list[dict[str, Any]]
    cost: Cost


@dataclass(frozen=True)
class LogPart:
    """Part of what a task has printed."""

    text: str  # without control characters but line feeds and tabs
    task: str
    attempt: int  # of which attempt; 0 if none has begun
    attempts: int
    end: int  # `after` of the next request for what follows
    more: bool  # whether more is there already
    ended: str  # what has ended, so that no more comes: no, attempt, job


class Client:
    """A Spotweave service and one caller of it.

        with spotweave.Client("https://spotweave.example.org:8421", token) as client:
            job = client.submit("wordcount.yaml")
            job = client.wait(job["job_id"])
            print(job["state"], job["cost"]["usd"])
            client.download(job["job_id"], "results")

    Wherever a job's id is expected, an unambiguous beginning of it will do. Every method raises ServiceError
    (a ValueError, one line): what the service refuses; and UnreachableError where no service answers.

    Args:
        url: of the service; None: SPOTWEAVE_SERVER, or `DEFAULT_SERVER`.
        token: access token; None: SPOTWEAVE_TOKEN, if that is set.
        tell: told in one line what is being waited for. Default: a warning of this module's logger.

    Raises ValueError (one line) if the URL or the token cannot be used.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, tell: Callable[[str], None] = _log.warning
    ) -> None:
        self._tell = tell
        self._known: set[str] = set()
        self.server = (url or os.environ.get("SPOTWEAVE_SERVER") or DEFAULT_SERVER).rstrip("/")
        expected = f"the service's address is {self.server!r}: expected http(s)://HOST:PORT"
        try:
            base = httpx.URL(self.server)
        except httpx.InvalidURL as error:
            raise ServiceError(expected) from error
        if base.scheme not in ("http", "https") or not base.host:
            raise ServiceError(expected)
        here = is_loopback(base.host)
        token = (os.environ.get("SPOTWEAVE_TOKEN", "") if token is None else token).strip()
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise ServiceError("the access token has characters that no token has: copy it again")
        if token and base.scheme == "http" and not here:
            tell(f"warning: the access token goes to {base.host} unencrypted; use https")
        self._http = httpx.Client(
            base_url=base,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT,
            verify=_certificates() if base.scheme == "https" else False,
            # A proxy cannot know what 127.0.0.1 is here.
            trust_env=not here,
        )

    def get(self, path: str, **query: Any) -> Any:
        """The answer's JSON. Raises ServiceError."""
        return self._answer(
            "GET", path, params={name: value for name, value in query.items() if value is not None}
        )

    def submit(
        self,
        job: str | Path | Mapping[str, Any],
        files: Mapping[str, bytes] | None = None,
        *,
        request_id: str | None = None,
    ) -> Job:
        """Submit a job.

        Args:
            job: path of a job file, next to which the files lie that it names; or what such a file holds.
            files: contents by path, where `job` is no file.
            request_id: the same one again gives the same job. Default: a new one.

        Raises ValueError (one line) if the file cannot be used, or the service refuses the job.
        """
        if isinstance(job, str | Path):
            spec = read_job(Path(job))
            files = read_files(spec, Path(job).parent)
            job = spec.model_dump(mode="json")
        request = {
            "spec": dict(job),
            "files": {name: base64.b64encode(content).decode() for name, content in (files or {}).items()},
            "request_id": request_id or secrets.token_hex(16),
        }
        return self._made("/v1/jobs", json=request)

    def retry(self, job_id: str) -> Job:
        """Submit a job that has ended once more, as it was submitted. Returns the new job."""
        path = f"/v1/jobs/{self.find(job_id)}/retry"
        return self._made(path, params={"request_id": secrets.token_hex(16)})

    def _made(self, path: str, **arguments: Any) -> Job:
        # The same request id again is the same job, so a request whose answer was lost may be repeated.
        try:
            job = self._answer("POST", path, **arguments)
        except UnreachableError as error:
            if isinstance(error.__cause__, httpx.ConnectError):
                raise
            job = self._answer("POST", path, **arguments)
        self._known.add(job["job_id"])
        return cast(Job, job)

    def find(self, job_id: str) -> str:
        """The full id of the only job whose id starts with `job_id`."""
        if job_id in self._known:
            return job_id
        missing = ServiceError(f"there is no job {job_id!r}: see spotweave jobs", httpx.codes.NOT_FOUND)
        if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,79}", job_id) is None:
            raise missing
        found = [one["job_id"] for one in self.jobs(prefix=job_id, limit=_SHOWN + 1)]
        if not found:
            raise missing
        if len(found) == 1:
            job_id = found[0]
        elif job_id not in found:
            try:
                self.get(f"/v1/jobs/{job_id}")
            except ServiceError as error:
                if error.status != httpx.codes.NOT_FOUND:
                    raise
                shown = ", ".join(found[:_SHOWN]) + (" and more" if len(found) > _SHOWN else "")
                raise ServiceError(
                    f"{job_id!r} is the beginning of several jobs: {shown}; give more of it"
                ) from error
        self._known.add(job_id)
        return job_id

    def jobs(
        self, states: Sequence[str] = (), *, prefix: str | None = None, limit: int = 100
    ) -> list[JobSummary]:
        """The latest jobs, newest first, at most 1000; filtered by state and id prefix."""
        return list(self.get("/v1/jobs", state=list(states) or None, prefix=prefix, limit=limit))

    def job(self, job_id: str) -> Job:
        """One job."""
        return cast(Job, self.get(f"/v1/jobs/{self.find(job_id)}"))

    def cancel(self, job_id: str) -> Job:
        """End a job."""
        return cast(Job, self._answer("DELETE", f"/v1/jobs/{self.find(job_id)}"))

    def explain(self, job_id: str) -> dict[str, Any]:
        """Why a job is where it is: itself, the decisions about it, its events."""
        return dict(self.get(f"/v1/jobs/{self.find(job_id)}/explain"))

    def wait(self, job_id: str) -> Job:
        """A job at its end. A service that is away (a restart, say) is waited for ten minutes."""
        return self.wait_all([job_id])[0]

    def wait_all(self, job_ids: Sequence[str], see: Callable[[Job], None] = lambda job: None) -> list[Job]:
        """Jobs at their ends, in this order; `see` is shown each of them whenever it was looked at."""
        ended: dict[str, Job] = {}
        away = _Away(self._tell)
        while True:
            try:
                for job_id in [one for one in job_ids if one not in ended]:
                    job = self.job(job_id)
                    away.back()
                    see(job)
                    if job["ended_s"] is not None:
                        ended[job_id] = job
            except UnreachableError as error:
                away.still(error)
            if len(ended) == len(set(job_ids)):
                return [ended[job_id] for job_id in job_ids]
            time.sleep(_POLL_S)

    def log(
        self,
        job_id: str,
        *,
        task: str | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        after: int = 0,
    ) -> LogPart:
        """Part of what a task has printed, 1 MiB at most.

        Args:
            job_id: the job.
            task: one of its tasks, `server` of a Flower job; None: the first.
            attempt: number of the try; None: the latest.
            tail: return at most this many of the last lines, up to 10,000.
            after: offset in bytes to start from.
        """
        query = {"task": task, "attempt": attempt, "tail": tail, "after": after}
        path, given = f"/v1/jobs/{self.find(job_id)}/logs", {k: v for k, v in query.items() if v is not None}
        response = self._asked("GET", path, params=given)
        told = response.headers
        try:
            return LogPart(
                text=response.text,
                task=told["X-Log-Task"],
                attempt=int(told["X-Log-Attempt"]),
                attempts=int(told["X-Log-Attempts"]),
                end=int(told["X-Log-Next"]),
                more=told["X-Log-More"] == "yes",
                ended=told["X-Log-Ended"],
            )
        except (KeyError, ValueError) as error:
            raise self._stranger(response) from error

    def logs(
        self,
        job_id: str,
        *,
        task: str | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Iterator[LogPart]:
        """All that a task has printed, and with `follow` what it prints, until its job (the attempt) ends.

        Without `attempt` the latest one is shown, and with `follow` those after it too.
        """
        part, away = self.log(job_id, task=task, attempt=attempt, tail=tail), _Away(self._tell)
        while True:
            yield part
            number, after = part.attempt, part.end
            if not part.more:
                if not follow:
                    return
                if part.ended != "no" and not part.text:
                    if attempt is None and part.attempt < part.attempts:
                        number, after = part.attempt + 1, 0
                    elif part.ended == "job" or attempt is not None:
                        return
                time.sleep(_POLL_S)
            try:
                part = self.log(job_id, task=part.task, attempt=number or None, after=after)
                away.back()
            except UnreachableError as error:
                away.still(error)

    def files(self, job_id: str) -> dict[str, int]:
        """Sizes in bytes of the files that a job has left in its folder, by path."""
        found = self.get(f"/v1/jobs/{self.find(job_id)}/files")["files"]
        return {one["path"]: one["size"] for one in found}

    def download(self, job_id: str, folder: str | Path | None = None) -> Path:
        """Fetch the files that a job has left, all of them or none.

        The folder is made; None: one with the job's id, here. Returns the folder. Raises ServiceError if the
        folder is there and not empty, there are no files, or they do not fit.
        """
        job_id = self.find(job_id)
        target = Path(job_id if folder is None else folder).resolve()
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise ServiceError(f"{target} is there already: name a folder that is not, or is empty")
        files = self.files(job_id)
        if not files:
            raise ServiceError(f"job {job_id} has left no files (yet)")
        for path in files:
            if not is_plain_path(path):
                raise ServiceError(f"the service names the file {path!r}, which leads elsewhere")
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            part.mkdir(parents=True)
            if (size := sum(files.values())) > shutil.disk_usage(part).free:
                raise ServiceError(
                    f"the files of job {job_id} have {size} bytes, more than is free for {target}"
                )
            for path in files:
                place = part / path
                place.parent.mkdir(parents=True, exist_ok=True)
                source = f"/v1/jobs/{job_id}/files/{quote(path)}"
                with self._streamed(source) as response, place.open("xb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
            part.rename(target)
        except OSError as error:
            raise ServiceError(f"cannot write to {target}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return target

    def follow(self, after: int, job_id: str | None) -> Iterator[dict[str, Any]]:
        """Events after a number, and then each as it comes; taken up again where the connection broke.

        Raises ServiceError if the service refuses, or does not come back within ten minutes.
        """
        query = {} if job_id is None else {"job_id": self.find(job_id)}
        away = _Away(self._tell)
        while True:
            try:
                for event in self._stream({**query, "after": str(after)}, after):
                    away.back()
                    after = event["sequence"]
                    yield event
            except UnreachableError as error:
                away.still(error)
            time.sleep(_AGAIN_S)

    def _stream(self, query: Mapping[str, str], after: int) -> Iterator[dict[str, Any]]:
        """One connection. Raises UnreachableError when it breaks; returns when the service ends it."""
        headers = {"Last-Event-ID": str(after)}
        with self._streamed("/v1/events/stream", params=query, headers=headers) as response:
            for line in response.iter_lines():
                # Every event is one line of data, which holds its number too.
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    @contextmanager
    def _streamed(self, path: str, **arguments: Any) -> Iterator[httpx.Response]:
        """An answer that is read as it comes. Raises UnreachableError when its connection breaks."""
        try:
            with self._http.stream("GET", path, **arguments) as response:
                if response.is_error:
                    response.read()
                    self._refuse(response)
                yield response
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _answer(self, method: str, path: str, **arguments: Any) -> Any:
        response = self._asked(method, path, **arguments)
        try:
            return response.json()
        except ValueError as error:
            raise self._stranger(response) from error

    def _asked(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        give_up_s = time.monotonic() + _TURN_MOST_S
        while True:
            try:
                response = self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                raise self._unreachable(error) from error
            wait_s = _turn_in(response)
            if wait_s is None or time.monotonic() + wait_s > give_up_s:
                break
            self._tell(f"the service is asked for too much; trying again in {wait_s} s")
            _sleep(wait_s)
        if response.is_error:
            self._refuse(response)
        return response

    def _refuse(self, response: httpx.Response) -> None:
        try:
            message = response.json()["error"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._stranger(response) from error
        if response.status_code == httpx.codes.UNAUTHORIZED:
            message = f"{message} (set SPOTWEAVE_TOKEN, or give --token-file FILE)"
        raise ServiceError(str(message), response.status_code)

    def _stranger(self, response: httpx.Response) -> ServiceError:
        status = f" (status {response.status_code})" if response.is_error else ""
        return ServiceError(f"what answers at {self.server} is no Spotweave service{status}")

    def _unreachable(self, error: httpx.TransportError) -> UnreachableError:
        if isinstance(error, httpx.ConnectError) and "CERTIFICATE" in str(error):
            return UnreachableError(
                f"the certificate of {self.server} is not trusted here ({error}): set SSL_CERT_FILE to the "
                "file of its authority"
            )
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return UnreachableError(
                f"no service answers at {self.server}: start one (spotweave serve --config FILE), or give "
                "--server URL"
            )
        told = str(error) or type(error).__name__
        return UnreachableError(f"the connection to {self.server} broke ({told})")

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _turn_in(response: httpx.Response) -> int | None:
    """Seconds after which a request that was one too many may be made again; None: not like that."""
    told = response.headers.get("Retry-After", "")
    if response.status_code != httpx.codes.TOO_MANY_REQUESTS or not (told.isdecimal() and len(told) < 5):
        return None
    return max(1, int(told))


def _certificates() -> ssl.SSLContext:
    file = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise ServiceError(f"SSL_CERT_FILE is {file!r}, which holds no certificates") from error


class _Away:
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._since_s: float | None = None

    def back(self) -> None:
        """Note that the service has answered."""
        self._since_s = None

    def still(self, error: UnreachableError) -> None:
        """Note that it has not, and report it the first time. Raises the error after ten minutes."""
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
            self._tell(f"{error}; trying again")
        elif now_s - self._since_s > _GIVE_UP_S:
            raise error


def connect(server: str | None, token_file: Path | None) -> Client:
    """The commands' client, which tells a person what it waits for.

    `token_file` holds an access token; None: SPOTWEAVE_TOKEN, if that is set. Raises ValueError (one line) if
    the URL or the token cannot be used.
    """
    token = None
    if token_file is not None:
        require_private(token_file, "the token file")
        try:
            token = token_file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ServiceError(f"cannot read an access token from {token_file}") from error
    return Client(server, token, tell=say)
