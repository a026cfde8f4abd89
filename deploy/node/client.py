"""The scheduler's side of the conversation with a node agent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from deploy.node.api import DrainRequest, NodeStatus, ProcessSpec, ProcessStatus, Signal, SignalRequest

_TIMEOUT = httpx.Timeout(10.0, connect=2.0)
_FILE_TIMEOUT = httpx.Timeout(60.0, connect=2.0)
_Message = TypeVar("_Message", bound=BaseModel)


class NodeError(Exception):
    """A node could not do what it was asked."""


class NodeUnreachable(NodeError):  # noqa: N818
    """No answer, or no sensible one: whether the node did it is not known. It may be asked again."""


class NodeRefused(NodeError):  # noqa: N818
    """The node said no.

    Attributes:
        code: HTTP status; 404 unknown, 409 draining, 422 the command cannot be run.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NodeClient:
    """Talks to one node agent; may be used from several threads.

    Every method raises NodeUnreachable or NodeRefused.
    """

    def __init__(self, address: str, port: int, token: str) -> None:
        host = f"[{address}]" if ":" in address else address
        self._client = httpx.Client(
            base_url=f"http://{host}:{port}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT,
            # The agent closes after each answer, and a node is never behind a proxy.
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
            # It is plain http: reading the machine's certificates would take longer than to ask.
            verify=False,
        )

    def __enter__(self) -> Self:
        """Use it as a context."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    def status(self) -> NodeStatus:
        """The heartbeat."""
        return self._ask("GET", "/v1/node", NodeStatus)

    def start_process(self, spec: ProcessSpec) -> ProcessStatus:
        """Start a process; one that the node knows already is only reported."""
        return self._ask("PUT", f"/v1/processes/{spec.process_id}", ProcessStatus, spec)

    def process(self, process_id: str) -> ProcessStatus:
        """How a process is."""
        return self._ask("GET", f"/v1/processes/{process_id}", ProcessStatus)

    def signal(self, process_id: str, signal: Signal) -> ProcessStatus:
        """Signal a process."""
        body = SignalRequest(signal=signal)
        return self._ask("POST", f"/v1/processes/{process_id}/signal", ProcessStatus, body)

    def stop_process(self, process_id: str, wait_s: float = 0.0) -> ProcessStatus:
        """Ask a process to end, and wait so long for it; after its grace the node kills all of it."""
        status = self._ask("DELETE", f"/v1/processes/{process_id}", ProcessStatus)
        end = time.monotonic() + wait_s
        while status.state == "running" and time.monotonic() < end:
            time.sleep(0.1)
            status = self.process(process_id)
        return status

    def log(self, process_id: str, offset: int = 0) -> bytes:
        """Its output from a byte on, at most 1 MiB; empty at the end."""
        return self._request("GET", f"/v1/processes/{process_id}/log", params={"offset": offset}).content

    def whole_log(self, process_id: str) -> Iterator[bytes]:
        """All its output, piece by piece."""
        offset = 0
        while piece := self.log(process_id, offset):
            offset += len(piece)
            yield piece

    def put_file(self, path: str, content: bytes | Path) -> None:
        """Put a file (or what a local file holds) into the node's working folder."""
        if isinstance(content, Path):
            # With a length: the agent takes no chunks.
            size = {"Content-Length": str(content.stat().st_size)}
            with content.open("rb") as file:
                self._request("PUT", _file(path), content=file, headers=size, timeout=_FILE_TIMEOUT)
        else:
            self._request("PUT", _file(path), content=content, timeout=_FILE_TIMEOUT)

    def get_file(self, path: str) -> bytes:
        """A file of the node's working folder, in memory."""
        return self._request("GET", _file(path), timeout=_FILE_TIMEOUT).content

    def drain(self, within_s: float) -> NodeStatus:
        """Tell the node that it will end in so many seconds."""
        return self._ask("POST", "/v1/drain", NodeStatus, DrainRequest(within_s=within_s))

    def _ask(self, method: str, path: str, kind: type[_Message], body: BaseModel | None = None) -> _Message:
        content = None if body is None else body.model_dump_json().encode()
        response = self._request(method, path, content=content)
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise NodeUnreachable(f"{self._client.base_url.netloc.decode()} is not a node agent") from error

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            place = self._client.base_url.netloc.decode()
            raise NodeUnreachable(f"{place}: {error or type(error).__name__}") from error
        if response.is_success:
            return response
        try:
            message = str(response.json()["error"])
        except (ValueError, KeyError, TypeError):
            message = f"HTTP {response.status_code}"
        raise NodeRefused(response.status_code, message)


def _file(path: str) -> str:
    return f"/v1/files/{quote(path)}"
