"""Clients of Google Cloud's APIs over REST, credentials from Google's own chain."""

from __future__ import annotations

import os
import threading
from typing import Any

import google.auth
import requests
from google.api_core import exceptions as api
from google.api_core.retry import Retry, if_exception_type
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1

from deploy.providers.gcp.errors import gcp_errors

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
