"""Clients of AWS services: one per service and region, credentials from the SDK's own chain."""

from __future__ import annotations

import threading
from typing import Any

import boto3
from botocore.config import Config

from deploy.providers.aws.errors import asking

_MAX_ATTEMPTS = 5
"""The SDK backs off between them, with jitter, up to 20 s; what fails then is the loop's to try again."""
_CONNECT_S = 5.0
_READ_S = 30.0


class Clients:
    """Makes each client once. Safe to use from several threads.

    Args:
        profile: of the SDK's configuration; None: the chain decides.
        endpoint_url: for every service; None: AWS_ENDPOINT_URL, else AWS itself.
        session: None: a new one.

    Raises:
        RefusedError: if there is no such profile.
    """

    def __init__(
        self, profile: str | None = None, endpoint_url: str | None = None, session: Any = None
    ) -> None:
        with asking("aws"):
            self._session = session if session is not None else boto3.Session(profile_name=profile)
        self._endpoint_url = endpoint_url
        self._config = Config(
            retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            max_pool_connections=20,
            user_agent_extra="spotweave",
        )
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def get(self, service: str, region: str) -> Any:
        """A client. Raises ProviderError."""
        # Sessions are not safe to share between threads; clients are.
        with self._lock, asking(f"aws {region}"):
            key = (service, region)
            if key not in self._clients:
                self._clients[key] = self._session.client(
                    service, region_name=region, endpoint_url=self._endpoint_url, config=self._config
                )
            return self._clients[key]

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()
