"""A job's SuperLink: a process on the scheduler's machine that outlives the scheduler; how it is asked."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufClientInterceptor, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from deploy.fl.exchange import SETUP_VARIABLE
from deploy.runners.detached import Detached
from deploy.runners.flower.app import Value, build
from deploy.runners.flower.guarded import TOKEN_FILE_VARIABLE, TOKEN_HEADER
from deploy.runners.flower.identity import Identity

_PORTS = range(20000, 30000)
"""Below the ports that systems hand out by themselves, so that one is still free after a restart."""
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


class SuperLinkDown(Exception):  # noqa: N818
    """It does not answer (yet)."""


@dataclass(frozen=True)
class Run:
    """A run as the SuperLink knows it.

    Attributes:
        run_id: Flower's number.
        finished: whether it is over.
        completed: whether it ended well.
        details: why it did not.
    """

    run_id: int
    finished: bool
    completed: bool
    details: str


class _Token:
    """Adds the control token to each request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[TOKEN_HEADER] = self._token
        return call_next(context)


class SuperLink:
    """One SuperLink, by its folder.

    Args of its making:
        folder: state: database, log, Flower's home.
        host: IP address on which it listens.
        port: on which it listens.
        identity: certificates and keys.
    """

    def __init__(self, folder: Path, host: str, port: int, identity: Identity) -> None:
        self._folder = folder.resolve()
        self._host, self._port = host, port
        self._identity = identity
        self._process = process_of(self._folder)
        self._client: ControlHttpClient | None = None

    @property
    def address(self) -> str:
        """Where nodes reach it."""
        return f"{self._host}:{self._port}"

    @property
    def log(self) -> Path:
        """What it and its ServerApps print."""
        return self._folder / "superlink.log"

    def running(self) -> bool:
        """Whether its process lives."""
        return self._process.running()

    def start(self, workdir: Path, setup: Path, env: Mapping[str, str]) -> None:
        """Start it, after whatever is left of an earlier one is gone; does not wait until it answers.

        Raises:
            RunnerError: if it cannot be started.
        """
        self.end()
        home = self._folder / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        bin_folder = Path(sys.executable).parent
        argv = [
            sys.executable,
            "-m",
            "deploy.runners.flower.guarded",
            *("--host", self._host, "--port", str(self._port)),
            *("--ssl-ca-certfile", str(self._identity.authority)),
            *("--ssl-certfile", str(self._identity.certificate)),
            *("--ssl-keyfile", str(self._identity.key)),
            *("--database", str(self._folder / "superlink.db")),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
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
            TOKEN_FILE_VARIABLE: str(self._identity.control),
        }
        self._process.start(argv, whole, workdir, self.log, again=True)

    def end(self) -> None:
        """End it, its ServerApps and everything else it started. Raises RunnerError if something stays."""
        self.forget_connection()
        self._process.end(grace_s=0.0)

    def forget_connection(self) -> None:
        """It may be another process now."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def runs(self) -> list[Run]:
        """All its runs, oldest first. Raises SuperLinkDown."""
        try:
            response = self._control().ListRuns(ListRunsRequest())
        except (httpx.HTTPError, OSError) as error:
            raise SuperLinkDown(str(error)) from error
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
        try:
            response = self._control().RegisterNode(RegisterNodeRequest(public_key=key, name=name))
        except (httpx.HTTPError, OSError) as error:
            raise SuperLinkDown(str(error)) from error
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
        client = FleetHttpClient.from_server_address(
            self.address, False, self._identity.authority.read_bytes(), interceptors
        )
        try:
            with client:
                client.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
        except httpx.HTTPStatusError:
            # It was offline already.
            return
        except (httpx.HTTPError, OSError) as error:
            raise SuperLinkDown(str(error)) from error

    def start_run(self, app: Path, config: dict[str, Value]) -> int:
        """Start the app's ServerApp.

        Raises:
            SuperLinkDown: if it cannot be asked.
            ValueError: if Flower refuses the app; one line.
        """
        content = build(app, app.name)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(config))
        try:
            response = self._control().StartRun(request)
        except httpx.HTTPStatusError as error:
            if error.response.status_code < 500:
                reason = " ".join(error.response.text.split())[:300]
                raise ValueError(f"app {app.name!r}: Flower refuses it: {reason}") from error
            raise SuperLinkDown(str(error)) from error
        except (httpx.HTTPError, OSError) as error:
            raise SuperLinkDown(str(error)) from error
        if not response.HasField("run_id"):
            raise ValueError(f"app {app.name!r}: Flower did not start it: {response.note}")
        return int(response.run_id)

    def stop_run(self, run_id: int) -> None:
        """Give a run up, so that nodes drop what they still have of it. Raises SuperLinkDown."""
        try:
            self._control().StopRun(StopRunRequest(run_id=run_id))
        except (httpx.HTTPError, OSError) as error:
            raise SuperLinkDown(str(error)) from error

    def last_line(self) -> str:
        """The end of its log, for people."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1][:300] if lines else ""

    def _nodes(self) -> dict[bytes, tuple[int, str]]:
        """Node id and status by public key; nodes that were taken out are not there."""
        try:
            response = self._control().ListNodes(ListNodesRequest())
        except (httpx.HTTPError, OSError) as error:
            raise SuperLinkDown(str(error)) from error
        return {
            node.public_key: (node.node_id, node.status)
            for node in response.nodes_info
            if node.status != "unregistered"
        }

    def _control(self) -> ControlHttpClient:
        if self._client is None:
            self._client = ControlHttpClient.from_server_address(
                self.address,
                insecure=False,
                root_certificates=self._identity.authority.read_bytes(),
                interceptors=[
                    RuntimeVersionHttpInterceptor(component_name="flwr CLI"),
                    _Token(self._identity.token()),
                ],
            )
        return self._client


def process_of(folder: Path) -> Detached:
    """The SuperLink's process of the job with this state folder."""
    return Detached(folder / "superlink")


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
