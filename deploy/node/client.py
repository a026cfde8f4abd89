"""The scheduler's side of the conversation with a node agent."""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from spotweave.deploy.node.api import NodeStatus, ProcessSpec, ProcessStatus, Signal, SignalRequest

_CONNECT_S = 2.0


class ExchangeError(Exception):
    """No usable answer; one line. Whether the node acted is unknown."""


def exchange(
    address: tuple[str, int],
    certificate: str,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None,
    within_s: float,
    most_bytes: int,
) -> tuple[int, bytes]:
    """Ask, and read the whole answer: its status and its body.

    A node is not trusted: whatever it sends, and however slowly, this ends `within_s` and reads `most_bytes`.
    Whoever shows another certificate (PEM) is asked nothing. Raises ExchangeError: see there.
    """
    ends_s = time.monotonic() + within_s
    try:
        with closing(_Connection(address, _trust(certificate), ends_s)) as connection:
            connection.connect()
            # Whoever refuses a body may close before it has all of it, and has said why.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, dict(headers))
            with closing(connection.getresponse()) as response:
                length = response.length
                if length is None or response.chunked or length > most_bytes:
                    raise ExchangeError(
                        f"expected its length, at most {most_bytes} bytes, and then the answer"
                    )
                return response.status, response.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ExchangeError(str(error).partition("\n")[0][:200] or type(error).__name__) from error


class _Connection(http.client.HTTPConnection):
    """TLS to one certificate, with an end in time for everything."""

    def __init__(self, address: tuple[str, int], trust: ssl.SSLContext, ends_s: float) -> None:
        super().__init__(*address)
        self._trust, self._ends_s = trust, ends_s

    def connect(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # Wrapped before it connects: of a peer that is gone already, wrap_socket loses the socket unclosed.
        secure = self._trust.wrap_socket(
            socket.socket(family, socket.SOCK_STREAM), do_handshake_on_connect=False
        )
        assert isinstance(secure, _Socket)
        self.sock = secure
        secure.settimeout(min(_CONNECT_S, _left_s(self._ends_s)))
        secure.connect((self.host, self.port))
        secure.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Until then, the handshake as a whole; nothing is sent to whoever does not pass it.
        secure.settimeout(_left_s(self._ends_s))
        secure.do_handshake()
        secure.ends_s = self._ends_s


class _Socket(ssl.SSLSocket):
    """A socket with one deadline for the whole exchange, however slowly bytes arrive."""

    ends_s = math.inf

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(_left_s(self.ends_s))
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        self.settimeout(_left_s(self.ends_s))
        return super().send(data, flags)


def _left_s(ends_s: float) -> float:
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no whole answer in time")
    return left_s


@lru_cache(maxsize=2048)
def _trust(certificate: str) -> ssl.SSLContext:
    """Trusts a certificate itself, whatever name it bears, and nothing else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.sslsocket_class = _Socket
    context.load_verify_locations(cadata=certificate)
    return context


WITHIN_S = 10.0
_FILE_WITHIN_S = 60.0
_FILE_BYTES_S = 1e6  # a file may take longer than that by so much as it is larger
_MOST_BYTES = 1 << 20
_MOST_MESSAGE = 300
_NOTICE_S = (-86_400.0, 7 * 86_400.0)
"""Accepted range of announced ends, relative to now; others are ignored."""
_Message = TypeVar("_Message", bound=BaseModel)


class NodeError(Exception):
    """A node could not do what it was asked."""


class NodeUnreachable(NodeError):  # noqa: N818
    """No answer, or no sensible one: whether the node did it is not known. It may be asked again."""


class NodeRefused(NodeError):  # noqa: N818
    """The node said no. `code` is the HTTP status: 409 draining, 422 the command cannot be run."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NodeUnknown(NodeRefused):
    """The node has no process or file of that name."""


class NodeClient:
    """Talks to one node agent; may be used from several threads. Each request is a connection of its own.

    The node is not trusted: what it answers is bounded in time and size, and checked. Who shows another
    certificate (PEM) is not the node, and hears no token.

    Every method raises NodeUnreachable or NodeRefused.
    """

    def __init__(
        self, address: str, port: int, token: str, certificate: str, *, within_s: float = WITHIN_S
    ) -> None:
        self._address, self._token = (address, port), token
        self._certificate, self._within_s = certificate, within_s

    def status(self) -> NodeStatus:
        """The heartbeat."""
        status = self._ask("GET", "/v1/node", NodeStatus)
        earliest_s, latest_s = (time.time() + seconds for seconds in _NOTICE_S)
        if status.notice_s is not None and not earliest_s <= status.notice_s <= latest_s:
            raise NodeUnreachable(f"{self._place}: says that it ends at {status.notice_s:.0f}: not believed")
        return status

    def start_process(self, spec: ProcessSpec) -> ProcessStatus:
        """Start a process; one that the node knows already is only reported."""
        return self._ask("PUT", f"/v1/processes/{spec.process_id}", ProcessStatus, spec)

    def process(self, process_id: str) -> ProcessStatus:
        """Status of a process."""
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
        """Output of a process from a byte on, at most 1 MiB; empty at the end.

        The agent shortens what grows too long: then an offset is that of a later byte.
        """
        return self._request("GET", f"/v1/processes/{process_id}/log?offset={offset}")

    def last_log(self, process_id: str, most_bytes: int = 1 << 16) -> bytes:
        """The end of its output: at most this many bytes, and never more than 1 MiB."""
        return self.log(process_id, -most_bytes)

    def put_file(self, path: str, content: bytes) -> None:
        """Put a file into the node's working folder."""
        within_s = _FILE_WITHIN_S + len(content) / _FILE_BYTES_S
        self._request("PUT", f"/v1/files/{quote(path)}", content, within_s=within_s)

    def get_file(self, path: str, size: int) -> bytes:
        """The first bytes of a file in the node's working folder: so many, or fewer where it is shorter."""
        content = bytearray()
        while len(content) < size:
            piece = self._request("GET", f"/v1/files/{quote(path)}?offset={len(content)}")
            content += piece
            if len(piece) < _MOST_BYTES:
                break
        return bytes(content[:size])

    @property
    def _place(self) -> str:
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _ask(self, method: str, path: str, kind: type[_Message], body: BaseModel | None = None) -> _Message:
        content = None if body is None else body.model_dump_json().encode()
        answer = self._request(method, path, content)
        try:
            return kind.model_validate_json(answer)
        except ValidationError as error:
            raise NodeUnreachable(f"{self._place} is not a node agent") from error

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        within_s: float | None = None,
    ) -> bytes:
        if not self._certificate:
            raise NodeUnreachable(f"{self._place}: its certificate is not known yet")
        try:
            code, answer = exchange(
                self._address,
                self._certificate,
                method,
                path,
                headers={"Authorization": f"Bearer {self._token}"},
                body=body,
                within_s=within_s or self._within_s,
                most_bytes=_MOST_BYTES,
            )
        except ExchangeError as error:
            raise NodeUnreachable(f"{self._place}: {error}") from error
        if 200 <= code < 300:
            return answer
        try:
            message = _Refusal.model_validate_json(answer).error
        except ValidationError:
            message = ""
        message = "".join(one if one.isprintable() else " " for one in message[:_MOST_MESSAGE])
        refusal = NodeUnknown if code == 404 else NodeRefused
        raise refusal(code, message or f"HTTP {code}")


class _Refusal(BaseModel):
    error: str
