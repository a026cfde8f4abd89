"""Clients of AWS services: one per service and region, credentials from the SDK's own chain."""

from __future__ import annotations

import threading
from typing import Any

import boto3
from botocore.config import Config

from deploy.providers.aws.errors import aws_errors

_CONNECT_S = 3.0
_COMMON = Config(max_pool_connections=20, user_agent_extra="spotweave")
_SMALL = _COMMON.merge(
    Config(
        retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=_CONNECT_S, read_timeout=8.0
    )
)
"""The SDK backs off between its attempts, with jitter; what fails then is the loop's to try again."""
_LARGE = _COMMON.merge(
    Config(
        retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=_CONNECT_S, read_timeout=30.0
    )
)
"""Weights go to S3, and none of the loop's passes waits for that."""


class Clients:
    """Makes each client once, as the SDK's chain or profile says. Safe to use from several threads.

    Raises:
        RefusedError: if there is no such profile.
    """

    def __init__(
        self, profile: str | None = None, endpoint_url: str | None = None, session: Any = None
    ) -> None:
        with aws_errors("aws"):
            self._session = session if session is not None else boto3.Session(profile_name=profile)
        self._endpoint_url = endpoint_url
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def get(self, service: str, region: str) -> Any:
        """A client. Raises ProviderError."""
        # Sessions are not safe to share between threads; clients are.
        with self._lock, aws_errors(f"aws {region}"):
            key = (service, region)
            if key not in self._clients:
                self._clients[key] = self._session.client(
                    service,
                    region_name=region,
                    endpoint_url=self._endpoint_url,
                    config=_LARGE if service == "s3" else _SMALL,
                )
            return self._clients[key]

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()
