"""Requests to a service, as its commands make them."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from deploy.cli.errors import say
from deploy.jobfile import read_files, read_job
from deploy.model.jobs import JobSpec
from deploy.security.keys import require_private
from deploy.security.tls import is_loopback

DEFAULT_SERVER = "http://127.0.0.1:8421"
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_AGAIN_S = 2.0
_GIVE_UP_S = 600.0
_TURN_MOST_S = 300.0
_sleep = time.sleep


class ServiceError(ValueError):
    """The service refuses a request; its own line."""


class UnreachableError(ServiceError):
    """No service answers; one may later."""


class Client:
    """One service and one caller.

    Args:
        server: its URL; None: SPOTWEAVE_SERVER, or `DEFAULT_SERVER`.
        token_file: file with an access token; None: SPOTWEAVE_TOKEN, if that is set.

    Raises:
        ValueError: one line, if the URL or the token cannot be used.
    """

    def __init__(self, server: str | None = None, token_file: Path | None = None) -> None:
        self.server = (server or os.environ.get("SPOTWEAVE_SERVER") or DEFAULT_SERVER).rstrip("/")
        expected = f"the service's address is {self.server!r}: expected http(s)://HOST:PORT"
        try:
            url = httpx.URL(self.server)
        except httpx.InvalidURL as error:
            raise ServiceError(expected) from error
        if url.scheme not in ("http", "https") or not url.host:
            raise ServiceError(expected)
        here = is_loopback(url.host)
        token = _token(token_file)
        if token and url.scheme == "http" and not here:
            say(f"warning: the access token goes to {url.host} unencrypted; use https")
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT,
            verify=_certificates() if url.scheme == "https" else False,
            # A proxy cannot know what 127.0.0.1 is here.
            trust_env=not here,
        )

    def get(self, path: str, **query: Any) -> Any:
        """The answer's JSON. Raises ServiceError."""
        return self._answer(
            "GET", path, params={name: value for name, value in query.items() if value is not None}
        )

    def submit(self, file: Path, spec: JobSpec | None = None) -> dict[str, Any]:
        """Send a job with its files.

        Args:
            file: the job's.
            spec: the job, if not as its file says.

        Raises:
            ValueError: one line, if the file cannot be used, or the service refuses the job.
        """
        spec = read_job(file) if spec is None else spec
        request = {
            "spec": spec.model_dump(mode="json"),
            "files": {
                name: base64.b64encode(content).decode()
                for name, content in read_files(spec, file.parent).items()
            },
            # The same one again is the same job, so a request whose answer was lost may be repeated.
            "request_id": secrets.token_hex(16),
        }
        try:
            job = self._answer("POST", "/v1/jobs", json=request)
        except UnreachableError as error:
            if isinstance(error.__cause__, httpx.ConnectError):
                raise
            job = self._answer("POST", "/v1/jobs", json=request)
        return dict(job)

    def cancel(self, job_id: str) -> dict[str, Any]:
        """End a job. Raises ServiceError."""
        return dict(self._answer("DELETE", f"/v1/jobs/{_segment(job_id)}"))

    def job(self, job_id: str) -> dict[str, Any]:
        """One job. Raises ServiceError."""
        return dict(self._answer("GET", f"/v1/jobs/{_segment(job_id)}"))

    def explain(self, job_id: str) -> dict[str, Any]:
        """Why a job is where it is. Raises ServiceError."""
        return dict(self._answer("GET", f"/v1/jobs/{_segment(job_id)}/explain"))

    def follow(self, after: int, job_id: str | None) -> Iterator[dict[str, Any]]:
        """Events after a number, and then each as it comes; taken up again where the connection broke.

        Raises:
            ServiceError: if the service refuses, or does not come back within ten minutes.
        """
        query = {} if job_id is None else {"job_id": job_id}
        broke_s: float | None = None
        while True:
            try:
                for event in self._stream({**query, "after": str(after)}, after):
                    broke_s = None
                    after = event["sequence"]
                    yield event
            except UnreachableError as error:
                now_s = time.monotonic()
                if broke_s is None:
                    broke_s = now_s
                    say(f"{error}; trying again")
                elif now_s - broke_s > _GIVE_UP_S:
                    raise
            time.sleep(_AGAIN_S)

    def _stream(self, query: Mapping[str, str], after: int) -> Iterator[dict[str, Any]]:
        """One connection. Raises UnreachableError when it breaks; returns when the service ends it."""
        try:
            with self._http.stream(
                "GET", "/v1/events/stream", params=query, headers={"Last-Event-ID": str(after)}
            ) as response:
                if response.is_error:
                    response.read()
                    self._refuse(response)
                for line in response.iter_lines():
                    # Every event is one line of data, which holds its number too.
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _answer(self, method: str, path: str, **arguments: Any) -> Any:
        give_up_s = time.monotonic() + _TURN_MOST_S
        while True:
            try:
                response = self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                raise self._unreachable(error) from error
            wait_s = _turn_in(response)
            if wait_s is None or time.monotonic() + wait_s > give_up_s:
                break
            say(f"the service is asked for too much; trying again in {wait_s} s")
            _sleep(wait_s)
        if response.is_error:
            self._refuse(response)
        try:
            return response.json()
        except ValueError as error:
            raise ServiceError(f"what answers at {self.server} is no Spotweave service") from error

    def _refuse(self, response: httpx.Response) -> None:
        try:
            message = response.json()["error"]
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceError(
                f"what answers at {self.server} is no Spotweave service (status {response.status_code})"
            ) from error
        if response.status_code == httpx.codes.UNAUTHORIZED:
            message = f"{message} (set SPOTWEAVE_TOKEN, or give --token-file FILE)"
        raise ServiceError(str(message))

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _turn_in(response: httpx.Response) -> int | None:
    """Seconds after which a request that was one too many may be made again; None: not like that."""
    told = response.headers.get("Retry-After", "")
    if response.status_code != httpx.codes.TOO_MANY_REQUESTS or not (told.isdecimal() and len(told) < 5):
        return None
    return max(1, int(told))


def _certificates() -> ssl.SSLContext:
    """Trust this machine's certificates, or those in SSL_CERT_FILE."""
    file = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise ServiceError(f"SSL_CERT_FILE is {file!r}, which holds no certificates") from error


def _token(file: Path | None) -> str:
    if file is None:
        token = os.environ.get("SPOTWEAVE_TOKEN", "")
    else:
        require_private(file, "the token file")
        try:
            token = file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ServiceError(f"cannot read an access token from {file}") from error
    token = token.strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ServiceError("the access token has characters that no token has: copy it again")
    return token


def _segment(job_id: str) -> str:
    """A part of a path, whatever was typed. Raises ServiceError."""
    if re.fullmatch(r"[a-z0-9-]+", job_id) is None:
        raise ServiceError(f"there is no job {job_id!r}: see spotweave jobs")
    return job_id
