"""Clients of Google Cloud's APIs over REST, credentials from Google's own chain."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import google.auth
import requests
from google.api_core import exceptions as api
from google.api_core.retry import Retry, if_exception_type
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1

from spotweave.deploy.providers.base import (
    CapacityError,
    ProviderError,
    QuotaError,
    RefusedError,
    ThrottledError,
)

VARIABLE = "COMPUTE_EMULATOR_HOST"
"""Environment variable with the address of an emulator of all APIs, named like STORAGE_EMULATOR_HOST."""
STORAGE_VARIABLE = "STORAGE_EMULATOR_HOST"
"""Environment variable with the address of an emulator of Cloud Storage alone."""
TIMEOUT_S = 10.0
RETRY = Retry(
    predicate=if_exception_type(
        api.InternalServerError,
        api.BadGateway,
        api.ServiceUnavailable,
        api.GatewayTimeout,
        requests.ConnectionError,
    ),
    initial=0.2,
    maximum=1.0,
    timeout=3.0,
)
"""All calls may be repeated: an insert has a request id, a delete a name. What fails then is the loop's."""
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class Clients:
    """Makes each client once; `endpoint_url`: of an emulator of all APIs. Safe for several threads."""

    def __init__(self, endpoint_url: str | None = None) -> None:
        self._endpoint_url = endpoint_url or os.environ.get(VARIABLE) or None
        self._made: dict[str, Any] = {}
        self._storage: Any = None
        self._session: Any = None
        self._lock = threading.Lock()
        self._credentials: Any = None

    @property
    def instances(self) -> compute_v1.InstancesClient:
        """Raises ProviderError."""
        found: compute_v1.InstancesClient = self.get("Instances")
        return found

    def get(self, service: str) -> Any:
        """The client of a service, e.g. "ZoneOperations". Raises ProviderError."""
        with self._lock, gcp_errors("gcp"):
            if service not in self._made:
                client = getattr(compute_v1, f"{service}Client")
                transport = client.get_transport_class("rest")
                host = {"host": self._endpoint_url} if self._endpoint_url else {}
                self._made[service] = client(transport=transport(credentials=self._identity(), **host))
            return self._made[service]

    @property
    def storage(self) -> Any:
        """The client of Cloud Storage. Raises ProviderError."""
        # Whoever keeps no checkpoints there need not have it.
        from google.cloud.storage import Client

        with self._lock, gcp_errors("gcp"):
            if self._storage is None:
                url = self._endpoint_url or os.environ.get(STORAGE_VARIABLE)
                self._storage = Client(
                    project=None,
                    credentials=self._identity(emulated=url is not None),
                    client_options={"api_endpoint": url} if url else None,
                )
            return self._storage

    @property
    def session(self) -> Any:
        """What asks the APIs that have no client here. Raises ProviderError."""
        with self._lock, gcp_errors("gcp"):
            if self._session is None:
                self._session = AuthorizedSession(self._identity())  # type: ignore[no-untyped-call]
            return self._session

    def ask(self, method: str, host: str, path: str, **about: Any) -> dict[str, Any]:
        """One request to an API that has no client here, as requests takes it; for use in `gcp_errors`."""
        session = self.session
        url = f"{self._endpoint_url or f'https://{host}'}{path}"

        def once() -> dict[str, Any]:
            answer = session.request(method, url, timeout=TIMEOUT_S, **about)
            if not answer.ok:
                raise api.from_http_response(answer)  # type: ignore[no-untyped-call]
            found: dict[str, Any] = answer.json()
            return found

        return RETRY(once)()

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for client in self._made.values():
                client.transport.close()
            self._made.clear()
            for one in (self._storage, self._session):
                if one is not None:
                    one.close()
            self._storage = self._session = None

    def _identity(self, *, emulated: bool = False) -> Any:
        # An emulator gets no real account's token.
        if emulated or self._endpoint_url is not None:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=_SCOPES)
        return self._credentials


REMEDY = "grant deploy/providers/gcp/role.yaml (docs/gcp.md)"  # for a permission that is missing
STORAGE_REMEDY = "grant deploy/providers/gcp/checkpoints_role.yaml on the bucket (docs/gcp.md)"
"""The same, on objects."""
_CAPACITY = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "RESOURCE_POOL_EXHAUSTED",
    "UNSUPPORTED_OPERATION_STOCKOUT",
    "VM_MIN_COUNT_NOT_REACHED",
    "IP_SPACE_EXHAUSTED",
)
_PERMISSION = re.compile(
    r"Required '(?P<compute>[a-zA-Z.]+)' permission(?: for '(?P<where>[^']+)')?"
    r"|does not have (?P<storage>storage\.[a-zA-Z.]+) access"
)
"""As Compute Engine and as Cloud Storage say it."""
_API = re.compile(r"[a-z]+\.googleapis\.com(?=/|\b)")
_REFUSED = (
    "Google Cloud does not accept these credentials, or they have expired: "
    "gcloud auth application-default login"
)
_THROTTLED = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED")
_DISABLED = ("accessNotConfigured", "SERVICE_DISABLED")
_INVALID = ("invalid", "badRequest", "required", "invalidParameter", "parseError", "INVALID_ARGUMENT")
"""What is wrong with a request whenever it is made. What a code that we do not know means may pass."""
_QUOTA = ("quotaExceeded", "QUOTA_EXCEEDED", "limitExceeded")


def of_operation(code: str, message: str, doing: str) -> ProviderError:
    """The error with which an operation ended."""
    text = " ".join(message.split())
    if code.startswith(_CAPACITY):
        return CapacityError(f"{doing}: {code}: {text}")
    if code in _QUOTA:
        return QuotaError(f"{doing}: {code}: {text} Ask for more under IAM & Admin, Quotas, or use less")
    if code in ("RESOURCE_NOT_FOUND", "INVALID_FIELD_VALUE", "PERMISSIONS_ERROR", "CONDITION_NOT_MET"):
        return RefusedError(f"{doing}: {code}: {text}")
    return ProviderError(f"{doing}: {code}: {text}")


def reason_of(error: BaseException | None) -> str:
    """The API's own reason, such as "quotaExceeded"; "" for failures that came from elsewhere."""
    if not isinstance(error, api.GoogleAPICallError):
        return ""
    for entry in error.errors or ():
        if isinstance(entry, dict) and entry.get("reason"):
            return str(entry["reason"])
    return str(error.reason or "")


def translated(error: Exception, doing: str) -> ProviderError:
    """The error of the interface that an error of Google's clients is, which came of `doing` something."""
    if isinstance(error, api.GoogleAPICallError):
        return _answered(error, doing)
    text = " ".join(str(error).split())
    if isinstance(error, auth.InvalidOperation):
        # What has no secret, as towards an emulator, cannot be renewed.
        return RefusedError(f"{doing}: {_REFUSED}")
    if isinstance(error, auth.DefaultCredentialsError):
        return RefusedError(f"{doing}: no Google credentials: gcloud auth application-default login")
    if isinstance(error, auth.RefreshError):
        return RefusedError(
            f"{doing}: the credentials have expired or were withdrawn: gcloud auth application-default login"
        )
    if isinstance(error, api.RetryError):
        return ProviderError(f"{doing}: no answer from Google Cloud: {text}")
    return ProviderError(f"{doing}: Google Cloud cannot be reached: {text}")


def _answered(error: api.GoogleAPICallError, doing: str) -> ProviderError:
    if not error.errors and isinstance(error.response, requests.Response):
        # Of uploads and downloads the client hands on the answer as it came.
        error = api.from_http_response(error.response)  # type: ignore[no-untyped-call]
    reason, status = reason_of(error), int(error.code or 0)
    text = " ".join(str(error.message).split())
    # The client puts method and address before what was said.
    text = re.sub(r"^(GET|POST|PUT|DELETE) \S+: ", "", text)
    if reason in _THROTTLED or status == 429:
        return ThrottledError(
            f"{doing}: {reason or status}: too many requests; they are tried again more slowly"
        )
    if reason.startswith(_CAPACITY):
        return CapacityError(f"{doing}: {reason}: {text}")
    if reason in _QUOTA:
        return QuotaError(f"{doing}: {reason}: {text} Ask for more under IAM & Admin, Quotas, or use less")
    if reason in _DISABLED:
        # The link in the message names it.
        name = next(iter(_API.findall(text.partition("/apis/api/")[2])), "compute.googleapis.com")
        return RefusedError(f"{doing}: the API {name} is not enabled: gcloud services enable {name}")
    if status == 401:
        return RefusedError(f"{doing}: {_REFUSED}")
    if status == 403:
        needed = _PERMISSION.search(text)
        what = f"is refused ({text})"
        if needed:
            where = f" on {needed['where']}" if needed["where"] else ""
            what = f"may not {needed['compute'] or needed['storage']}{where}"
        remedy = STORAGE_REMEDY if needed and needed["storage"] else REMEDY
        return RefusedError(f"{doing}: this identity {what}: {remedy}")
    if status == 404 or (status == 400 and reason in _INVALID):
        return RefusedError(f"{doing}: {text}")
    if status == 409:
        return RefusedError(f"{doing}: {reason or 'conflict'}: {text}")
    return ProviderError(f"{doing}: Google Cloud failed ({status} {reason}): {text}")


@contextmanager
def gcp_errors(doing: str) -> Iterator[None]:
    """Turns what the client raises inside into the interface's errors."""
    try:
        yield
    except (api.GoogleAPIError, auth.GoogleAuthError, requests.RequestException) as error:
        raise translated(error, doing) from error
