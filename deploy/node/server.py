"""The agent's HTTP side: small, bounded, and deaf without the token."""

from __future__ import annotations

import hmac
import logging
import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, ValidationError

from deploy.node.api import DrainRequest, NodeStatus, ProcessSpec, SignalRequest
from deploy.node.files import PathError, inside, receive
from deploy.node.listener import Listener, QuietHandler
from deploy.node.processes import DrainingError, Processes, StartError, TooManyError
from deploy.security.untrusted import open_beneath

MAX_JSON_BYTES = 1 << 20
MAX_FILE_BYTES = 4 << 30
MAX_LOG_BYTES = 1 << 20
_WITHIN_S = 30.0
"""For a request whose client has shown the token; a file may take longer by its size."""
_FILE_BYTES_S = 250e3

_log = logging.getLogger(__name__)
_Message = TypeVar("_Message", bound=BaseModel)
_PROCESS = re.compile(r"/v1/processes/([A-Za-z0-9._-]{1,120})(/signal|/log)?")


class NodeView(Protocol):
    """What the server needs of the agent."""

    @property
    def token(self) -> str:
        """Of every request."""

    @property
    def workdir(self) -> Path:
        """Where files go."""

    @property
    def processes(self) -> Processes:
        """What runs."""

    def status(self) -> NodeStatus:
        """The heartbeat."""

    def drain(self) -> None:
        """Prepare to end."""


class _RefusalError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class AgentServer(Listener):
    """Listens on the instance's own address."""

    def __init__(self, address: str, port: int, node: NodeView, context: ssl.SSLContext) -> None:
        self.node = node
        super().__init__(address, port, _Handler, context)


class _Handler(QuietHandler):
    server: AgentServer

    def do_GET(self) -> None:  # noqa: N802
        """Reads."""
        self._serve(self._get)

    def do_PUT(self) -> None:  # noqa: N802
        """Starts a process or takes a file."""
        self._serve(self._put)

    def do_POST(self) -> None:  # noqa: N802
        """Signals and drains."""
        self._serve(self._post)

    def do_DELETE(self) -> None:  # noqa: N802
        """Ends a process."""
        self._serve(self._delete)

    def _serve(self, act: Callable[[str], None]) -> None:
        try:
            given = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {self.server.node.token}".encode()):
                raise _RefusalError(401, "expected the node's bearer token")
            self.server.trust(self.connection, _WITHIN_S)
            act(urlsplit(self.path).path)
        except _RefusalError as refusal:
            self._refuse(refusal.code, str(refusal))
        except KeyError:
            self._refuse(404, "no such process on this node")
        except PathError as error:
            self._refuse(400, str(error))
        except (ConnectionError, TimeoutError, EOFError):
            raise
        except OSError as error:
            self._refuse(507 if error.errno == 28 else 500, error.strerror or "input/output error")
        except Exception:
            _log.exception("a request failed")
            self._refuse(500, "an error inside the node agent; its log says more")

    def _get(self, path: str) -> None:
        node = self.server.node
        if path == "/v1/node":
            self._answer(node.status())
        elif path.startswith("/v1/files/"):
            place = inside(node.workdir, unquote(path.removeprefix("/v1/files/")))
            try:
                # A job may have put a pipe there, which would be waited for.
                file = open_beneath(
                    node.workdir, place.relative_to(node.workdir.resolve()).as_posix(), os.O_RDONLY
                )
            except FileNotFoundError:
                raise _RefusalError(404, "no such file on this node") from None
            with os.fdopen(file, "rb") as opened:
                self._send_from(opened, self._offset())
        else:
            process_id, rest = self._process(path)
            if rest == "":
                self._answer(node.processes.status(process_id))
            elif rest == "/log":
                self._send_log(node.processes.log_path(process_id), self._offset())
            else:
                raise _RefusalError(405, "POST it")

    def _put(self, path: str) -> None:
        node = self.server.node
        if path.startswith("/v1/files/"):
            place = inside(node.workdir, unquote(path.removeprefix("/v1/files/")))
            if place.is_dir():
                raise _RefusalError(409, "there is a folder of that name")
            length = self._length(MAX_FILE_BYTES)
            self.server.trust(self.connection, _WITHIN_S + length / _FILE_BYTES_S)
            receive(place, self.rfile, length)
            self.send(204, b"")
            return
        process_id, rest = self._process(path)
        if rest:
            raise _RefusalError(405, "PUT the process itself")
        spec = self._body(ProcessSpec)
        if spec.process_id != process_id:
            raise _RefusalError(400, "process_id differs from the one in the path")
        try:
            self._answer(node.processes.start(spec))
        except DrainingError:
            raise _RefusalError(409, "the node is draining and starts nothing more") from None
        except TooManyError:
            raise _RefusalError(429, "the node has had as many processes as it may") from None
        except StartError as error:
            raise _RefusalError(422, f"cannot start {error}") from error

    def _post(self, path: str) -> None:
        node = self.server.node
        if path == "/v1/drain":
            self._body(DrainRequest)
            node.drain()
            self._answer(node.status())
            return
        process_id, rest = self._process(path)
        if rest != "/signal":
            raise _RefusalError(405, "PUT a process, POST to its signal")
        self._answer(node.processes.signal(process_id, self._body(SignalRequest).signal))

    def _delete(self, path: str) -> None:
        process_id, rest = self._process(path)
        if rest:
            raise _RefusalError(405, "DELETE the process itself")
        self._answer(self.server.node.processes.stop(process_id))

    def _process(self, path: str) -> tuple[str, str]:
        found = _PROCESS.fullmatch(path)
        if found is None:
            raise _RefusalError(404, "no such endpoint")
        return found[1], found[2] or ""

    def _offset(self) -> int:
        given = parse_qs(urlsplit(self.path).query).get("offset", ["0"])[-1]
        if not re.fullmatch(r"-?[0-9]{1,15}", given):
            raise _RefusalError(400, "offset: expected a number of bytes")
        return int(given)

    def _length(self, largest: int) -> int:
        given = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,15}", given):
            raise _RefusalError(411, "expected a Content-Length")
        if int(given) > largest:
            raise _RefusalError(413, f"expected at most {largest} bytes")
        return int(given)

    def _body(self, kind: type[_Message]) -> _Message:
        content = self.rfile.read(self._length(MAX_JSON_BYTES))
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            # Not what was given: it may hold what must not be logged.
            first = error.errors(include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "body"
            raise _RefusalError(400, f"{where}: {first['msg']}") from None

    def _send_log(self, place: Path, offset: int) -> None:
        with place.open("rb") as file:
            self._send_from(file, offset)

    def _send_from(self, file: BinaryIO, offset: int) -> None:
        size = file.seek(0, 2)
        begin = min(offset, size) if offset >= 0 else max(0, size + offset)
        file.seek(begin)
        self.send(200, file.read(min(size - begin, MAX_LOG_BYTES)), "application/octet-stream")

    def _answer(self, message: BaseModel) -> None:
        self.send(200, message.model_dump_json().encode(), "application/json")

    def _refuse(self, code: int, message: str) -> None:
        self.send(code, _Error(error=message).model_dump_json().encode(), "application/json")


class _Error(BaseModel):
    error: str
