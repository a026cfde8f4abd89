"""The agent's HTTP side: small, bounded, and deaf without the token."""

from __future__ import annotations

import hmac
import json
import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, ValidationError

from spotweave.deploy.node.api import ProcessSpec, RefusalError, SignalRequest
from spotweave.deploy.node.config import STATE_FOLDER
from spotweave.deploy.security.untrusted import part
from spotweave.deploy.yamlfile import terse_mistake
from spotweave.files import replacing, write_private

if TYPE_CHECKING:
    from spotweave.deploy.node.agent import Agent


_log = logging.getLogger(__name__)
# An HTTP server for a handful of clients: bounded, and quick to start.
#
# The standard library's, because each node would need the packages of any other, and its image with them.

STRANGER_S = 15.0  # seconds allowed from the connection to the end of the headers, TLS handshake included
_MOST = 64
_MOST_OF_ADDRESS = 32
_LINGER_S = 2.0
_Message = TypeVar("_Message", bound=BaseModel)


@dataclass
class _Open:
    """A connection. Only who has shown the token is no stranger any more."""

    address: str
    began_s: float
    ends_s: float
    stranger: bool = True


class Listener(ThreadingHTTPServer):
    """Listens on one address, in one thread per connection and with few of them.

    Each connection has an end in time, whatever its client sends or does not. Where there are too many, in
    all or of one address, the oldest stranger makes room: holding connections shuts no one else out.
    """

    daemon_threads = True
    # A restarted server takes its port at once.
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self,
        address: str,
        port: int,
        handler: type[BaseHTTPRequestHandler],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._context = context
        self._open: dict[socket.socket, _Open] = {}
        self._guard = threading.Lock()
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, port), handler)

    @property
    def port(self) -> int:
        """On which it listens."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve in a thread."""
        threading.Thread(target=self.serve_forever, name="listener", daemon=True).start()

    def server_bind(self) -> None:
        """Bind, without the name lookup of http.server, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def service_actions(self) -> None:
        """Between two connections, and twice a second: end what has had its time."""
        now_s = time.monotonic()
        with self._guard:
            late = [connection for connection, about in self._open.items() if about.ends_s <= now_s]
            for connection in late:
                self._shut(connection)

    def trust(self, connection: socket.socket, within_s: float) -> None:
        """Mark a connection as authenticated: it may stay for `within_s` and is no longer evicted."""
        with self._guard:
            about = self._open.get(connection)
            if about is not None:
                about.stranger, about.ends_s = False, time.monotonic() + within_s

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, which has the handshake too: here nothing may wait."""
        if self._admit(request, str(client_address[0])):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection."""
        connection = request
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
                with self._guard:
                    # Whoever was shut meanwhile finds that out in the handshake.
                    if (about := self._open.pop(request, None)) is not None:
                        self._open[connection] = about
                connection.do_handshake()
        except (OSError, ValueError):
            self.handle_error(request, client_address)
            self.shutdown_request(connection)
        else:
            super().process_request_thread(connection, client_address)
        finally:
            with self._guard:
                self._open.pop(connection, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""
        _log.debug("a connection ended early", exc_info=True)

    def _admit(self, connection: socket.socket, address: str) -> bool:
        now_s = time.monotonic()
        with self._guard:
            rivals = [one for one, about in self._open.items() if about.address == address]
            if len(rivals) < _MOST_OF_ADDRESS:
                rivals = list(self._open) if len(self._open) >= _MOST else []
            if rivals:
                strangers = [one for one in rivals if self._open[one].stranger]
                if not strangers:
                    return False
                self._shut(min(strangers, key=lambda one: self._open[one].began_s))
            self._open[connection] = _Open(address, now_s, now_s + STRANGER_S)
            return True

    def _shut(self, connection: socket.socket) -> None:
        """Wake its thread, wherever in it the connection is waited for; that thread closes it."""
        del self._open[connection]
        with suppress(OSError):
            # Not the method of an SSLSocket: that is not for two threads.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


def tls_context(certificate: str, key: str, place: Path) -> ssl.SSLContext:
    """A server's TLS context for a certificate and its key (PEM); raises OSError, ssl.SSLError.

    Both are written to the file `place`, because the standard library takes a key from a file only.
    """
    write_private(place, f"{key}\n{certificate}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Every request has a connection of its own.
    context.num_tickets = 0
    context.load_cert_chain(place)
    return context


class QuietHandler(BaseHTTPRequestHandler):
    """One request per connection, none of them logged."""

    protocol_version = "HTTP/1.1"
    server_version = "spotweave"
    sys_version = ""
    json_most_bytes = 1 << 20

    def log_message(self, format: str, *args: Any) -> None:
        """Others ask every few seconds."""

    def send(self, code: int, content: bytes, kind: str = "") -> None:
        """A whole answer, the last one of this connection."""
        self.close_connection = True
        self.send_response(code)
        if kind:
            self.send_header("Content-Type", kind)
        if code != 204:
            self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        if code >= 400:
            self._linger()

    def answer(self, message: BaseModel) -> None:
        """Send a message as JSON with status 200."""
        self.send(200, message.model_dump_json().encode(), "application/json")

    def length(self, most: int) -> int:
        """Length of the request body in bytes. Raises RefusalError if it is missing or above `most`."""
        given = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,15}", given):
            raise RefusalError(411, "expected a Content-Length")
        if int(given) > most:
            raise RefusalError(413, f"{given} bytes: expected at most {most}")
        return int(given)

    def body(self, length: int) -> bytes:
        """Read the request body. Raises EOFError if it is shorter than `length` bytes."""
        content = self.rfile.read(length)
        if len(content) != length:
            raise EOFError("the request ended early")
        return content

    def message(self, kind: type[_Message]) -> _Message:
        """Parse the request body, which is JSON. Raises RefusalError, EOFError."""
        try:
            return kind.model_validate_json(self.body(self.length(self.json_most_bytes)))
        except ValidationError as error:
            # Not what was given: it may hold what must not be logged.
            raise RefusalError(400, terse_mistake(error, "body")) from None

    def _linger(self) -> None:
        """Take what the client still sends: closing on unread data would reset the answer away."""
        end = time.monotonic() + _LINGER_S
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(_LINGER_S)
        while time.monotonic() < end and self.connection.recv(1 << 20):
            pass


MAX_FILE_BYTES = 4 << 30
MAX_LOG_BYTES = 1 << 20
_WITHIN_S = 30.0  # for a request whose client has shown the token; a file may take longer by its size
_FILE_BYTES_S = 250e3

_PROCESS = re.compile(r"/v1/processes/([A-Za-z0-9._-]{1,120})(/signal|/log)?")


class AgentServer(Listener):
    """Listens on the instance's own address."""

    def __init__(self, address: str, port: int, node: Agent, context: ssl.SSLContext) -> None:
        self.node = node
        super().__init__(address, port, _Handler, context)


class _Handler(QuietHandler):
    server: AgentServer

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_PUT(self) -> None:
        self._serve(self._put)

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def _serve(self, act: Callable[[str], None]) -> None:
        try:
            given = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {self.server.node.token}".encode()):
                raise RefusalError(401, "expected the node's bearer token")
            self.server.trust(self.connection, _WITHIN_S)
            act(urlsplit(self.path).path)
        except RefusalError as refusal:
            self._refuse(refusal.code, str(refusal))
        except KeyError:
            self._refuse(404, "no such process on this node")
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
            self.answer(node.status())
        elif path.startswith("/v1/files/"):
            place = inside(node.workdir, unquote(path.removeprefix("/v1/files/")))
            try:
                self._send_part(node.workdir, place.relative_to(node.workdir.resolve()).as_posix())
            except FileNotFoundError:
                raise RefusalError(404, "no such file on this node") from None
        else:
            process_id, rest = self._process(path)
            if rest == "":
                self.answer(node.processes.status(process_id))
            elif rest == "/log":
                log = node.processes.log_path(process_id)
                self._send_part(log.parent, log.name)
            else:
                raise RefusalError(405, "POST it")

    def _put(self, path: str) -> None:
        node = self.server.node
        if path.startswith("/v1/files/"):
            place = inside(node.workdir, unquote(path.removeprefix("/v1/files/")))
            if place.is_dir():
                raise RefusalError(409, "there is a folder of that name")
            length = self.length(MAX_FILE_BYTES)
            self.server.trust(self.connection, _WITHIN_S + length / _FILE_BYTES_S)
            receive(place, self.rfile, length)
            self.send(204, b"")
            return
        process_id, rest = self._process(path)
        if rest:
            raise RefusalError(405, "PUT the process itself")
        spec = self.message(ProcessSpec)
        if spec.process_id != process_id:
            raise RefusalError(400, "process_id differs from the one in the path")
        self.answer(node.processes.start(spec))

    def _post(self, path: str) -> None:
        process_id, rest = self._process(path)
        if rest != "/signal":
            raise RefusalError(405, "PUT a process, POST to its signal")
        self.answer(self.server.node.processes.signal(process_id, self.message(SignalRequest).signal))

    def _delete(self, path: str) -> None:
        process_id, rest = self._process(path)
        if rest:
            raise RefusalError(405, "DELETE the process itself")
        self.answer(self.server.node.processes.stop(process_id))

    def _process(self, path: str) -> tuple[str, str]:
        found = _PROCESS.fullmatch(path)
        if found is None:
            raise RefusalError(404, "no such endpoint")
        return found[1], found[2] or ""

    def _offset(self) -> int:
        given = parse_qs(urlsplit(self.path).query).get("offset", ["0"])[-1]
        if not re.fullmatch(r"-?[0-9]{1,15}", given):
            raise RefusalError(400, "offset: expected a number of bytes")
        return int(given)

    def _send_part(self, folder: Path, name: str) -> None:
        # Not a plain open: a job may have put a pipe there, which would be waited for.
        content, _ = part(folder, name, self._offset(), MAX_LOG_BYTES)
        self.send(200, content, "application/octet-stream")

    def _refuse(self, code: int, message: str) -> None:
        self.send(code, json.dumps({"error": message}, ensure_ascii=False).encode(), "application/json")


# The node's working folder, as far as it may be reached from outside.


_PIECE = 1 << 20


def inside(workdir: Path, path: str) -> Path:
    """The file that a relative path names. Raises RefusalError if that is elsewhere, or the agent's own."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part or len(part) > 255 for part in parts) or len(parts) > 32:
        raise RefusalError(
            400, f"path {path[:100]!r}: expected names separated by single slashes, without . and .."
        )
    if parts[0] == STATE_FOLDER:
        raise RefusalError(400, f"{STATE_FOLDER} belongs to the agent")
    root = workdir.resolve()
    place = root.joinpath(*parts)
    if not place.resolve().is_relative_to(root):
        raise RefusalError(400, f"path {path[:100]!r} follows a link out of the working folder")
    return place


def receive(place: Path, body: BufferedIOBase, length: int) -> None:
    """Write a body to a file of mode 0600, whole or not at all. Raises EOFError, OSError."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(place, mode=0o600) as temporary, temporary.open("wb") as file:
        left = length
        while left:
            piece = body.read(min(left, _PIECE))
            if not piece:
                raise EOFError
            file.write(piece)
            left -= len(piece)


# What the processes of a node print: a file each, as long as it may become and no longer.

MOST_LOG_BYTES = 1 << 26  # on the disk. What is longer is shortened to its end.
_TAIL_BYTES = 1 << 18


class Logs:
    """A folder with one file for each process.

    Processes write into their files themselves, and so need no agent to go on. Files are looked at now and
    then, and may be longer for a moment.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def path(self, process_id: str) -> Path:
        """Path of a process's output."""
        return self._folder / f"{process_id}.log"

    def open(self, process_id: str) -> int:
        """A file descriptor that appends. Raises OSError."""
        return os.open(
            self.path(process_id),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
        )

    def shorten(self, process_id: str) -> bool:
        """Keep only the end of what is too long, with a line that says so. Returns whether it was.

        What is printed in this very moment may be lost.
        """
        try:
            handle = os.open(self.path(process_id), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            about = os.fstat(handle)
            # Not its length: who opens it again without appending leaves a hole after it was shortened.
            if about.st_blocks * 512 <= MOST_LOG_BYTES:
                return False
            tail = os.pread(handle, _TAIL_BYTES, max(0, about.st_size - _TAIL_BYTES))
            os.ftruncate(handle, 0)
            note = f"[the node agent dropped {about.st_size - len(tail)} bytes of output here]\n"
            os.write(handle, note.encode() + tail)
            return True
        finally:
            os.close(handle)
