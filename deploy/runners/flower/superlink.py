"""A job's SuperLink: a process on the scheduler's machine that outlives the scheduler; how it is asked."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpcore
import httpx
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import (
    ProtobufCall,
    ProtobufClient,
    ProtobufClientInterceptor,
    ProtobufRequestContext,
)
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from httpcore import SOCKET_OPTION

from spotweave.deploy.fl.checkpoints import SETUP_VARIABLE
from spotweave.deploy.runners.detached import Limits, tail
from spotweave.deploy.runners.flower.guarded import (
    RUNTIME_TOKEN_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_HEADER,
)
from spotweave.deploy.runners.flower.identity import Identity
from spotweave.deploy.runners.flower.inspecting import Value
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.security.sandbox import Box, Sandbox

# HTTP whose answers end: a server that sends a byte per second, or without end, is given up in time.
#
# httpx bounds the time between two bytes only.


class BoundedTransport(httpx.HTTPTransport):
    """For a client that is used by one thread at a time.

    Args:
        verify: what the server's certificate is checked with.
        within_s: for a whole request, from connecting to the last byte of the answer.
        most_bytes: of an answer with its headers, as it is sent.
    """

    def __init__(self, verify: ssl.SSLContext, within_s: float, most_bytes: int) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._within_s, self._most_bytes = within_s, most_bytes
        self._until_s = 0.0
        self._left_bytes = 0
        assert isinstance(self._pool, httpcore.ConnectionPool)
        # What httpx does not pass on.
        self._pool._network_backend = _Backend(self)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        self._until_s = time.monotonic() + self._within_s
        self._left_bytes = self._most_bytes
        return super().handle_request(request)

    def left_s(self, asked_s: float | None) -> float:
        """How long the next step may take. Raises httpcore.ReadTimeout if nothing is left."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout(f"no whole answer within {self._within_s:g} s")
        return left_s if asked_s is None else min(asked_s, left_s)

    def count(self, size: int) -> None:
        """Note what was received. Raises httpcore.ReadError if it is too much."""
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise httpcore.ReadError(f"the answer has more than {self._most_bytes} bytes")


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, bounds: BoundedTransport) -> None:
        self._inner, self._bounds = inner, bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found = self._inner.read(max_bytes, self._bounds.left_s(timeout))
        self._bounds.count(len(found))
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._bounds.left_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._bounds.left_s(timeout))
        return _Stream(inner, self._bounds)

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, bounds: BoundedTransport) -> None:
        self._inner, self._bounds = httpcore.SyncBackend(), bounds

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        inner = self._inner.connect_tcp(
            host, port, self._bounds.left_s(timeout), local_address, socket_options
        )
        return _Stream(inner, self._bounds)


_PORTS = range(20000, 30000)
"""Below the ports that systems hand out by themselves, so that one is still free after a restart."""
_ANSWER_S = 10.0
_START_S = 30.0
"""An app has up to some MiB, and the SuperLink writes it to its disk."""
_ANSWER_MOST_BYTES = 16 << 20
_LOG_MOST_BYTES = 256 << 20
_LAST_LINE_BYTES = 4096
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_Client = TypeVar("_Client", bound=ProtobufClient)


class SuperLinkDown(Exception):  # noqa: N818
    """The SuperLink does not answer (yet)."""


@dataclass(frozen=True)
class Run:
    """A run as the SuperLink knows it."""

    run_id: int  # Flower's number
    finished: bool  # whether it is over
    completed: bool  # whether it ended well
    details: str  # why it did not


class _Token:
    def __init__(self, token: str) -> None:
        self._token = token

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[TOKEN_HEADER] = self._token
        return call_next(context)


class SuperLink:
    """One SuperLink, by its job's state.

    Only `shown` and the job's own folder have to be visible to it and to the user's ServerApp that it starts;
    it writes in `shown/data` and there. What it answers is checked like what a stranger says.
    """

    def __init__(self, state: JobFiles, host: str, port: int, identity: Identity) -> None:
        self._folder, self._shown, self._process = state.folder, state.shown, state.process
        self.log = state.log
        self._host, self._port = host, port
        self._identity = identity
        self._client: ControlHttpClient | None = None

    @property
    def address(self) -> str:
        """Address for nodes."""
        return f"{self._host}:{self._port}"

    def running(self) -> bool:
        """Whether the SuperLink's process lives."""
        return self._process.running()

    def start(
        self,
        workdir: Path,
        setup: Path,
        env: Mapping[str, str],
        sandbox: Sandbox | None = None,
        limits: Limits | None = None,
        *,
        fresh: bool = False,
        devices: tuple[Path, ...] = (),
        placed: bool = False,
    ) -> None:
        """Start it, after whatever is left of an earlier one is gone; does not wait until it answers.

        Args:
            workdir: the job's own folder, its current one.
            setup: file of what its ServerApps are told.
            env: of the job.
            sandbox: around it and its ServerApps; None: none.
            limits: of it and its ServerApps together; None: none.
            fresh: nothing rests on its database yet. Then it makes a new one: killed while it makes the
                tables, it would never start again with what it has made.
            devices: that the sandbox lets through.
            placed: its ServerApps run on another machine.

        Raises:
            RunnerError: if it cannot be started.
        """
        self.end()
        identity, data = self._identity, self._shown / "data"
        if fresh:
            for file in data.glob("superlink.db*"):
                file.unlink()
        home = data / "home"
        identity.show()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        bin_folder = Path(sys.executable).parent
        argv = [
            sys.executable,
            "-m",
            "spotweave.deploy.runners.flower.guarded",
            *("--host", self._host, "--port", str(self._port)),
            *("--ssl-ca-certfile", str(identity.shown_authority)),
            *("--ssl-certfile", str(identity.shown_certificate)),
            *("--ssl-keyfile", str(identity.shown_key)),
            *("--database", str(data / "superlink.db")),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *(("--isolation", "process") if placed else ()),
        ]
        # Nothing is inherited but PATH: the user's ServerApp must not see the scheduler's secrets.
        whole = {
            "LANG": "C.UTF-8",
            **env,
            **QUIET,
            "PATH": f"{bin_folder}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(home),
            "FLWR_HOME": str(home),
            SETUP_VARIABLE: str(setup),
            TOKEN_FILE_VARIABLE: str(identity.shown_control),
        }
        if placed:
            whole[RUNTIME_TOKEN_FILE_VARIABLE] = str(identity.shown_runtime)
        boxed = None
        if sandbox is not None:
            # The job's: nothing is read back from either.
            writable = (workdir.resolve(), self._shown)
            job_id = self._folder.name
            box = Box(box_name(job_id), job_id, writable, self._folder / "tmp", devices=devices)
            boxed = sandbox, box
        self._process.start(argv, whole, workdir, self.log, again=True, boxed=boxed, limits=limits)

    def fault(self) -> str:
        """Why it can never run, by the job's own doing; "" if it may."""
        result = self._process.result()
        return result.error if result is not None and result.of_job else ""

    def forgive(self) -> None:
        """Let it be tried again. It does not run."""
        self._process.forget_result()

    def end(self) -> None:
        """End it, its ServerApps and everything else it started. Raises RunnerError if something stays."""
        self.forget_connection()
        self._process.end(grace_s=0.0)

    def forget_connection(self) -> None:
        """Reconnect: another process may be listening now."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def runs(self) -> list[Run]:
        """All its runs, oldest first. Raises SuperLinkDown."""
        with _probes():
            response = self._control().ListRuns(ListRunsRequest())
        runs = sorted(response.run_dict.values(), key=lambda run: run.pending_at)
        return [
            Run(
                run.run_id,
                run.status.status == "finished",
                run.status.sub_status == "completed",
                run.status.details,
            )
            for run in runs
        ]

    def online(self) -> set[int]:
        """Ids of the nodes that are there. Raises SuperLinkDown."""
        return {node_id for node_id, status in self._nodes().values() if status == "online"}

    def register(self, name: str) -> int:
        """Make a client's key known; a key that is known keeps its node id. Raises SuperLinkDown."""
        key = self._identity.public_key(name)
        if (known := self._nodes().get(key)) is not None:
            return known[0]
        with _probes():
            response = self._control().RegisterNode(RegisterNodeRequest(public_key=key, name=name))
        return int(response.node_id)

    def set_offline(self, name: str, node_id: int) -> None:
        """Say in a client's name that it is gone. A node that was killed would stay "online" for a minute,
        and refused under its own key so long. Raises SuperLinkDown.
        """
        key = self._identity.private_key(name)
        interceptors: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        try:
            with _probes(), self._bound(FleetHttpClient, interceptors, _ANSWER_S) as client:
                client.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
        except SuperLinkDown as error:
            if not isinstance(error.__cause__, httpx.HTTPStatusError):
                raise
            # It was offline already.

    def start_run(self, name: str, content: bytes, config: Mapping[str, Value]) -> int:
        """Start the ServerApp of an app as Flower ships it; `config` replaces its settings.

        Raises:
            SuperLinkDown: if it cannot be asked.
            ValueError: if Flower refuses the app; one line.
        """
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(dict(config)))
        try:
            with _probes(), self._new_control(_START_S) as client:
                response = client.StartRun(request)
        except SuperLinkDown as error:
            cause = error.__cause__
            if isinstance(cause, httpx.HTTPStatusError) and cause.response.status_code < 500:
                reason = " ".join(cause.response.text.split())[:300]
                raise ValueError(f"app {name!r}: Flower refuses it: {reason}") from error
            raise
        if not response.HasField("run_id"):
            raise ValueError(
                f"app {name!r}: Flower did not start it: {' '.join(response.note.split())[:300]}"
            )
        return int(response.run_id)

    def stop_run(self, run_id: int) -> None:
        """Give a run up, so that nodes drop what they still have of it. Raises SuperLinkDown."""
        with _probes():
            self._control().StopRun(StopRunRequest(run_id=run_id))

    def last_line(self) -> str:
        """The end of its log, for people."""
        lines = tail(self.log, _LAST_LINE_BYTES).strip().splitlines()
        return lines[-1][:300] if lines else ""

    def trim_log(self) -> None:
        """Let go of a log that is too long: what a ServerApp prints is not to fill the disk."""
        try:
            if self.log.stat().st_size > _LOG_MOST_BYTES:
                kept = tail(self.log)
                # Who writes to it appends, so nothing is in the way of that.
                with self.log.open("r+b") as file:
                    file.truncate(0)
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(f"[what came before was more than {_LOG_MOST_BYTES} bytes]\n{kept}")
        except FileNotFoundError:
            return

    def _nodes(self) -> dict[bytes, tuple[int, str]]:
        """Node id and status by public key; nodes that were taken out are not there."""
        with _probes():
            response = self._control().ListNodes(ListNodesRequest())
        return {
            node.public_key: (node.node_id, node.status)
            for node in response.nodes_info
            if node.status != "unregistered"
        }

    def _control(self) -> ControlHttpClient:
        if self._client is None:
            self._client = self._new_control(_ANSWER_S)
        return self._client

    def _new_control(self, within_s: float) -> ControlHttpClient:
        interceptors: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="flwr CLI"),
            _Token(self._identity.token()),
        ]
        return self._bound(ControlHttpClient, interceptors, within_s)

    def _bound(
        self, kind: type[_Client], interceptors: list[ProtobufClientInterceptor], within_s: float
    ) -> _Client:
        """A client of Flower with an HTTP client of ours: its own bounds only the time between two bytes,
        and goes wherever it is sent.
        """
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        verify.load_verify_locations(cadata=self._identity.authority.read_text())
        client = kind(f"https://{self.address}", interceptors=interceptors, verify=verify)
        client._client.close()
        client._client = httpx.Client(
            transport=BoundedTransport(verify, within_s, _ANSWER_MOST_BYTES), timeout=within_s
        )
        return client


@contextmanager
def _probes() -> Iterator[None]:
    """No answer, or none that can be understood, is SuperLinkDown."""
    try:
        yield
    except (httpx.HTTPError, OSError, ValueError) as error:
        raise SuperLinkDown(str(error) or type(error).__name__) from error


def box_name(job_id: str) -> str:
    """Name of the sandbox of a job's SuperLink."""
    return f"superlink {job_id}"


def free_port(host: str) -> int:
    """A port of the range on which nobody listens now. Raises OSError if there is none."""
    offset = time.time_ns() // 1000 % len(_PORTS)
    for step in range(len(_PORTS)):
        port = _PORTS[(offset + step) % len(_PORTS)]
        try:
            with socket.create_server((host, port)):
                return port
        except OSError:
            continue
    raise OSError(f"no free port on {host}")
