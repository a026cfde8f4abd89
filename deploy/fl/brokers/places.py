"""Where brokers are, what they prove who they are with, and with what the one who asks does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from agents.federated.asynchronous.updates import UpdateError
from deploy.node.connection import ExchangeError, exchange

KEY = "spotweave-brokers"
"""In a node's configuration: the file with its `Places`."""
_SHORT_S = 10.0
_BYTES_S = 1e6
_MOST_BYTES = 1 << 20
SERVER = "server"
RUNNER = "runner"


def client(number: int) -> str:
    """How a client is called at brokers."""
    return f"client-{number}"


def broker(number: int) -> str:
    """How a broker is called at others."""
    return f"broker-{number}"


class BrokerError(Exception):
    """A broker does not answer, or cannot do now what it is asked; trying again may help."""


class UnwantedError(UpdateError):
    """A shard came too late, or again after its update was used or given up."""


class Place(BaseModel):
    """One broker, as one of those that ask it knows it.

    Attributes:
        host: IP address.
        port: on which it listens.
        certificate: PEM; whoever shows another one is told nothing.
        token: of the one who asks, at this broker alone.
    """

    model_config = ConfigDict(extra="forbid")

    host: str
    port: int
    certificate: str
    token: str = Field(repr=False)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        most_bytes: int = _MOST_BYTES,
        within_s: float = _SHORT_S,
    ) -> bytes:
        """One request.

        Args:
            method: of HTTP.
            path: of the broker.
            body: of the request.
            most_bytes: of the answer.
            within_s: for a small one; what is large has more time.

        Raises:
            BrokerError: if it does not answer, or not now (503).
            UnwantedError: if a shard is not wanted any more (410).
            UpdateError: if it refuses for good; one line.
        """
        try:
            status, content = exchange(
                (self.host, self.port),
                self.certificate,
                method,
                path,
                headers={"Authorization": f"Bearer {self.token}", "Content-Length": str(len(body))},
                body=body,
                within_s=within_s + max(0, len(body) + most_bytes - _MOST_BYTES) / _BYTES_S,
                most_bytes=most_bytes,
            )
        except ExchangeError as error:
            raise BrokerError(f"broker {self.host}:{self.port}: {error}") from error
        if status < 300:
            return content
        reason = " ".join(content.decode(errors="replace").split())[:300]
        if status == 503:
            raise BrokerError(f"broker {self.host}:{self.port}: {reason}")
        raise UnwantedError(reason) if status == 410 else UpdateError(reason)

    def post(self, path: str, message: Any = None, within_s: float = _SHORT_S) -> Any:
        """A small request and its answer, both JSON. Raises as `ask`."""
        content = self.ask("POST", path, json.dumps(message).encode(), within_s=within_s)
        return json.loads(content) if content else None


class Places(BaseModel):
    """All brokers of a job, by their number."""

    model_config = ConfigDict(extra="forbid")

    brokers: list[Place]

    @classmethod
    def load(cls, path: Path) -> Self:
        """From a file."""
        return cls.model_validate_json(path.read_bytes())
