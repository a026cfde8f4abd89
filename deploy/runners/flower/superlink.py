"""A job's SuperLink: a process on the scheduler's machine that outlives the scheduler; how it is asked."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
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
from flwr.supercore.protobuf.client import ProtobufClient, ProtobufClientInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from spotweave.deploy.fl.checkpoints import SETUP_VARIABLE
from spotweave.deploy.node.client import ExchangeError, exchange
from spotweave.deploy.runners.detached import Limits, tail
from spotweave.deploy.runners.flower.guarded import (
    RUNTIME_TOKEN_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_HEADER,
)
from spotweave.deploy.runners.flower.inspecting import Value
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.runners.jobfolder import JobFolder
from spotweave.deploy.security.keys import self_signed
from spotweave.deploy.security.sandbox import Box, Sandbox
from spotweave.files import write_private

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


class _Transport(httpx.BaseTransport):
    """Bounded in time and size as `exchange` is: httpx bounds the time between two bytes only."""

    def __init__(self, host: str, port: int, certificate: str, within_s: float) -> None:
        self._address, self._certificate, self._within_s = (host, port), certificate, within_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            status, content = exchange(
                self._address,
                self._certificate,
                request.method,
                request.url.raw_path.decode(),
                headers=request.headers,
                body=request.read(),
                within_s=self._within_s,
                most_bytes=_ANSWER_MOST_BYTES,
            )
        except ExchangeError as error:
            raise httpx.TransportError(str(error)) from error
        return httpx.Response(status, content=content)


class SuperLink:
    """One SuperLink, by its job's state.

    Only `shown` and the job's own folder have to be visible to it and to the user's ServerApp that it starts;
    it writes in `shown/data` and there. What it answers is checked like what a stranger says.
    """

    def __init__(self, state: JobFiles, host: str, port: int, identity: Identity) -> None:
        self._state, self._process, self.log = state, state.process, state.log
        self._host, self._port = host, port
        self._identity = identity

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
        env: Mapping[str, str],
        sandbox: Sandbox,
        limits: Limits,
        *,
        fresh: bool,
        devices: tuple[Path, ...],
        placed: bool,
    ) -> None:
        """Start it, after whatever is left of an earlier one is gone; does not wait until it answers.

        It has the job's folder and variables; sandbox and limits are around it and its ServerApps together,
        which reach these devices, or run on another machine (`placed`). `fresh`: nothing rests on its
        database yet. Then it makes a new one: killed while it makes the tables, it would never start again
        with what it has made. Raises RunnerError if it cannot be started.
        """
        self.end()
        state, identity = self._state, self._identity
        data = state.shown / "data"
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
            *("--ssl-ca-certfile", str(identity.shown / AUTHORITY)),
            *("--ssl-certfile", str(identity.shown / CERTIFICATE)),
            *("--ssl-keyfile", str(identity.shown / KEY)),
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
            SETUP_VARIABLE: str(state.setup),
            TOKEN_FILE_VARIABLE: str(identity.shown / CONTROL),
        }
        if placed:
            whole[RUNTIME_TOKEN_FILE_VARIABLE] = str(identity.shown / RUNTIME)
        # The job's: nothing is read back from either.
        writable, name = (workdir.resolve(), state.shown), box_name(state.job_id)
        boxed = sandbox, Box(name, state.job_id, writable, state.folder / "tmp", devices=devices)
        self._process.start(argv, whole, workdir, self.log, again=True, boxed=boxed, limits=limits)

    def fault(self) -> str:
        """Why it can never run, by the job's own doing; "" if it may."""
        result = self._process.result()
        return result.error if result is not None and result.of_job else ""

    def end(self) -> None:
        """End it, its ServerApps and everything else it started. Raises RunnerError if something stays."""
        self._process.end(grace_s=0.0)

    def runs(self) -> list[Run]:
        """All its runs, oldest first. Raises SuperLinkDown."""
        with self._control(_ANSWER_S) as client:
            response = client.ListRuns(ListRunsRequest())
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
        with self._control(_ANSWER_S) as client:
            response = client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
        return int(response.node_id)

    def set_offline(self, name: str, node_id: int) -> None:
        """Say in a client's name that it is gone. A node that was killed would stay "online" for a minute,
        and refused under its own key so long. Raises SuperLinkDown.
        """
        key = self._identity.private_key(name)
        asking: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor("SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        try:
            with self._client(FleetHttpClient, asking, _ANSWER_S, {}) as client:
                client.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
        except SuperLinkDown as error:
            if not isinstance(error.__cause__, httpx.HTTPStatusError):
                raise
            # It was offline already.

    def start_run(self, name: str, content: bytes, config: Mapping[str, Value]) -> int:
        """Start the ServerApp of an app as Flower ships it; `config` replaces its settings.

        Raises SuperLinkDown if it cannot be asked; ValueError (one line) if Flower refuses the app.
        """
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(dict(config)))
        try:
            with self._control(_START_S) as client:
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
        with self._control(_ANSWER_S) as client:
            client.StopRun(StopRunRequest(run_id=run_id))

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
        with self._control(_ANSWER_S) as client:
            response = client.ListNodes(ListNodesRequest())
        return {
            node.public_key: (node.node_id, node.status)
            for node in response.nodes_info
            if node.status != "unregistered"
        }

    def _control(self, within_s: float) -> AbstractContextManager[ControlHttpClient]:
        asking = [RuntimeVersionHttpInterceptor("flwr CLI")]
        return self._client(ControlHttpClient, asking, within_s, {TOKEN_HEADER: self._identity.token()})

    @contextmanager
    def _client(
        self,
        kind: type[_Client],
        interceptors: Sequence[ProtobufClientInterceptor],
        within_s: float,
        headers: Mapping[str, str],
    ) -> Iterator[_Client]:
        """A client of Flower, whose own HTTP client would go wherever it is sent.

        No answer, or none that can be understood, is SuperLinkDown.
        """
        certificate = self._identity.authority.read_text()
        transport = _Transport(self._host, self._port, certificate, within_s)
        unused = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # of the HTTP client that is replaced
        try:
            with kind(f"https://{self.address}", interceptors=interceptors, verify=unused) as client:
                client._client.close()
                plain = {"Accept-Encoding": "identity"}
                client._client = httpx.Client(transport=transport, headers={**plain, **headers})
                yield client
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise SuperLinkDown(str(error) or type(error).__name__) from error


def box_name(job_id: str) -> str:
    """Name of the sandbox of a job's SuperLink."""
    return f"superlink {job_id}"


def free_ports(host: str, count: int) -> list[int]:
    """Find different free ports in the range. Raises OSError if there are too few."""
    found: list[int] = []
    offset = time.time_ns() // 1000 % len(_PORTS)
    for step in range(len(_PORTS)):
        port = _PORTS[(offset + step) % len(_PORTS)]
        with suppress(OSError), socket.create_server((host, port)):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports on {host}")


# A job's certificates and keys: made once, readable by their owner only, gone with the job.


AUTHORITY, CERTIFICATE, KEY = "authority.pem", "superlink.pem", "superlink.key"
CONTROL, RUNTIME = "control.token", "runtime.token"
"""Without the first, the SuperLink's control API answers nothing; with the second, a SuperExec on another
machine asks for the job's ServerApp, and nothing else."""


class Identity:
    """The secrets of one job, all of them in a folder for the scheduler alone.

    What its SuperLink needs is copied to `shown`. The user's ServerApp may run as the same user as the
    SuperLink, so nothing is ever read back from there, and clients' keys never get there.
    """

    def __init__(self, folder: Path, shown: Path) -> None:
        self._folder, self.shown = folder, shown
        self.authority = folder / AUTHORITY  # nodes check the SuperLink against it: its own certificate

    def make(self, host: str) -> None:
        """Make what is missing, for a SuperLink that nodes reach at this IP address."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The certificate is written last: where it is, all of the three fit together.
        if not (self._folder / CERTIFICATE).exists():
            pair = self_signed("spotweave job", ec.SECP384R1(), hashes.SHA384(), host)
            write_private(self.authority, pair.certificate)
            write_private(self._folder / KEY, pair.key)
            write_private(self._folder / CERTIFICATE, pair.certificate)
        for token in (CONTROL, RUNTIME):
            if not (self._folder / token).exists():
                write_private(self._folder / token, secrets.token_urlsafe(32))

    def show(self) -> None:
        """Give the SuperLink what it needs."""
        self.shown.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (AUTHORITY, CERTIFICATE, KEY, CONTROL, RUNTIME):
            JobFolder(self.shown).write(name, (self._folder / name).read_bytes())

    def client_key(self, name: str) -> Path:
        """File of a client's private key, as OpenSSH writes it; made when it is asked for first."""
        path = self._folder / f"client-{name}.key"
        if not path.exists():
            key = ec.generate_private_key(ec.SECP384R1()).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            )
            write_private(path, key)
        return path

    def private_key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """A client's private key."""
        key = serialization.load_ssh_private_key(self.client_key(name).read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    def public_key(self, name: str) -> bytes:
        """A client's public key as PEM: its identity at the SuperLink."""
        return (
            self.private_key(name)
            .public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )

    def token(self) -> str:
        """For the control API. Never logged."""
        return (self._folder / CONTROL).read_text()

    def runtime_token(self) -> str:
        """Token of a SuperExec on another machine. Never logged."""
        return (self._folder / RUNTIME).read_text()
