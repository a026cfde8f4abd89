"""Clients of Compute Engine over REST, credentials from Google's own chain."""

from __future__ import annotations

import os
import threading
from typing import Any

import google.auth
import requests
from google.api_core import exceptions as api
from google.api_core.retry import Retry, if_exception_type
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from deploy.providers.gcp.errors import gcp_errors

VARIABLE = "COMPUTE_EMULATOR_HOST"
"""Where an emulator is, after the pattern of Google's own STORAGE_EMULATOR_HOST."""
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
    """Makes each client once. Safe to use from several threads.

    Args:
        endpoint_url: of an emulator; None: COMPUTE_EMULATOR_HOST, else Google Cloud itself.
    """

    def __init__(self, endpoint_url: str | None = None) -> None:
        self._endpoint_url = endpoint_url or os.environ.get(VARIABLE) or None
        self._made: dict[str, Any] = {}
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

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for client in self._made.values():
                client.transport.close()
            self._made.clear()

    def _identity(self) -> Any:
        # An emulator gets no real account's token.
        if self._endpoint_url is not None:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=_SCOPES)
        return self._credentials
