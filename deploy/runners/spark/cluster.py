"""Spark's own processes: the master on this machine, found again after a restart, and workers on nodes."""

from __future__ import annotations

import base64
import json
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from spotweave.deploy.model.tasks import Node
from spotweave.deploy.node.api import ProcessSpec
from spotweave.deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnknown, NodeUnreachable
from spotweave.deploy.runners.base import RunnerError, StartingError
from spotweave.deploy.runners.detached import Detached, tail
from spotweave.deploy.runners.spark.attempts import last_error
from spotweave.deploy.runners.spark.settings import DAEMON_OPTIONS, SparkHome, SparkSettings, properties
from spotweave.deploy.runners.workers import REFILL, Patience, WorkerPool, connect, known_process
from spotweave.deploy.security.sandbox import Box
from spotweave.deploy.security.untrusted import remove_tree
from spotweave.files import write_private

_WORKER_TIMEOUT_S = 30
_PORT_TRIES = 3


def secured() -> dict[str, str]:
    """Conf by which every part of the cluster proves that it knows the secret, and encrypts what it says."""
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def free_port(address: str) -> int:
    """A port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


class Master:
    """Starts it, finds it, asks it.

    Its ports are chosen once and kept, and it keeps what it knows on disk (recovery mode FILESYSTEM), so that
    after its death the next one takes over the workers and applications that go on without it.

    The REST submission server is on, for operators' own tools: only with a JSON Web Token signed with
    `rest.key` of its folder. The runner itself starts drivers directly (see runner.py).
    """

    def __init__(self, settings: SparkSettings, patience_s: float) -> None:
        self._settings = settings
        self._folder = settings.state.resolve() / "master"
        # All that its process may see of the folder: drivers talk to it, and some of them may be hostile.
        self._own = self._folder / "own"
        self._process = Detached(self._folder)
        self._lock = threading.Lock()
        self._starts = WorkerPool("spark-master", 1)
        self._patience = Patience(patience_s, REFILL)

    @property
    def url(self) -> str:
        """URL of the master for workers and drivers."""
        return f"spark://{self._settings.address}:{self._ports()['rpc']}"

    @property
    def web_url(self) -> str:
        """URL of the master's web pages."""
        return f"http://{self._settings.address}:{self._ports()['web']}"

    @property
    def secret(self) -> str:
        """What every part of the cluster must know. Never in argv or logs."""
        return (self._folder / "secret").read_text()

    def start(self, home: SparkHome) -> None:
        """Bring it up (idempotent). Raises StartingError while it is not, RunnerError if it cannot be."""
        earlier = self._starts.pending("start")
        if earlier is not None and earlier.future.done():
            # It finished after its callers had stopped waiting; the master may have died since.
            self._starts.collect("start")
            earlier.future.result()
            earlier = None
        if earlier is None and self.state() == "ALIVE":
            return
        work = self._starts.begin("start", lambda: self._bring_up(home))
        if not self._patience.wait(work):
            raise StartingError(f"the Spark master is starting, {work.took_s:.0f} s so far; see {self._log}")
        self._starts.collect("start")
        work.future.result()

    def _bring_up(self, home: SparkHome) -> None:
        with self._lock:
            for left in reversed(range(_PORT_TRIES)):
                self._launch(home)
                if self._wait():
                    return
                # Only a master that nobody knows may move; the others' workers look for it where it was.
                taken = "BindException" in tail(self._log, 1 << 14)
                if taken and left and not (self._folder / "was_up").exists():
                    (self._folder / "ports.json").unlink()
                    continue
                break
        raise RunnerError(f"the Spark master does not come up on {self.url}: {self._reason()}")

    def revive(self, home: SparkHome) -> None:
        """Start it again if it died, without waiting. Raises RunnerError."""
        if (self._folder / "was_up").exists() and not self._process.running():
            with self._lock:
                self._launch(home)

    def state(self) -> str | None:
        """ALIVE, RECOVERING, ... as it says itself; None if it cannot be asked."""
        found = self.view()
        return None if found is None else str(found["status"])

    def view(self) -> dict[str, Any] | None:
        """What it says of its workers and applications; None if it cannot be asked."""
        if not (self._folder / "ports.json").exists():
            return None
        try:
            answer = httpx.get(f"{self.web_url}/json/", timeout=5.0, trust_env=False)
            found = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return None
        # Something else may have taken the port.
        return found if isinstance(found, dict) and found.get("url") == self.url else None

    def up_s(self) -> float:
        """Seconds since its process was started."""
        return self._process.up_s()

    def end(self) -> None:
        """End it and forget its cluster. Raises RunnerError."""
        with self._lock:
            self._process.end(grace_s=0.0)
            remove_tree(self._own)
            (self._folder / "was_up").unlink(missing_ok=True)
            (self._folder / "ports.json").unlink(missing_ok=True)

    @property
    def _log(self) -> Path:
        return self._folder / "master.log"

    def _ports(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self._folder / "ports.json").read_bytes())
        return found

    def _launch(self, home: SparkHome) -> None:
        if self._process.running():
            return
        address = self._settings.address
        recovery = self._own / "recovery"
        recovery.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            if not (self._folder / "ports.json").exists():
                write_private(
                    self._folder / "ports.json",
                    json.dumps({name: free_port(address) for name in ("rpc", "web", "rest")}),
                )
        except OSError as error:
            raise RunnerError(f"the Spark master cannot listen on {address}: {error.strerror}") from error
        for name in ("secret", "rest.key"):
            if not (self._folder / name).exists():
                write_private(self._folder / name, base64.urlsafe_b64encode(secrets.token_bytes(48)))
        ports = self._ports()
        # Spark would take the next port without a word, and nobody would find it there.
        conf = secured() | {
            "spark.port.maxRetries": "0",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryTimeout": "15",
            "spark.worker.timeout": str(_WORKER_TIMEOUT_S),
            "spark.ui.killEnabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
            "spark.master.rest.enabled": "true",
            "spark.master.rest.host": address,
            "spark.master.rest.port": str(ports["rest"]),
            "spark.master.rest.filters": "org.apache.spark.ui.JWSFilter",
            "spark.deploy.recoveryDirectory": str(recovery),
            "spark.org.apache.spark.ui.JWSFilter.param.secretKey": (self._folder / "rest.key").read_text(),
        }
        write_private(self._own / "master.conf", properties(conf))
        argv = [f"{home.path}/bin/spark-class", "org.apache.spark.deploy.master.Master", "--host", address]
        argv += ["--port", str(ports["rpc"]), "--webui-port", str(ports["web"])]
        argv += ["--properties-file", str(self._own / "master.conf")]
        env = home.environment(address) | {
            "SPARK_MASTER_OPTS": DAEMON_OPTIONS,
            "SPARK_DAEMON_MEMORY": self._settings.daemon_memory,
            "_SPARK_AUTH_SECRET": self.secret,
        }
        box = Box("spark master", "spark master", (self._own,), self._folder / "tmp")
        boxed = self._settings.sandbox, box
        self._process.start(argv, env, self._own, self._log, again=True, boxed=boxed)

    def _wait(self) -> bool:
        until = time.monotonic() + self._settings.start_timeout_s
        while time.monotonic() < until:
            if self.state() == "ALIVE":
                (self._folder / "was_up").touch()
                return True
            if not self._process.running():
                return False
            time.sleep(0.2)
        return False

    def _reason(self) -> str:
        if self._process.running():
            return f"no answer after {self._settings.start_timeout_s:.0f} s; see {self._log}"
        lines = [line for line in tail(self._log, 1 << 14).splitlines() if line and not line.startswith("\t")]
        errors = [line for line in lines if "Exception" in line or "ERROR" in line or "Error" in line]
        return (errors or lines or ["it ended without a word"])[-1]


SMALLEST_MEMORY_GIB = 1.0
GPU = "gpu"  # Spark's name of the resource
_END_S = 2.0
_SMALLEST_HEAP_MIB = 512
_DAEMON_MIB = 256
_HEAP_SHARE = 0.75
"""Executor heap as a share of memory beyond the worker's own; Python and off-heap get the rest."""


def process_id(attempt_id: str) -> str:
    """Process id of an attempt's worker, the same on every node."""
    return f"spark-{attempt_id}"


def resource(attempt_id: str) -> str:
    """The custom resource that ties an attempt's executors to its workers; Spark's names hold no dots."""
    return re.sub(r"[^A-Za-z0-9-]", "-", f"attempt-{attempt_id}")


def executor_memory_mib(memory_gib: float) -> int:
    """Heap of the executor on a node with this memory."""
    return max(_SMALLEST_HEAP_MIB, int((memory_gib * 1024 - _DAEMON_MIB) * _HEAP_SHARE))


def known_states(attempt_id: str, view: Mapping[str, Any] | None) -> dict[str, str]:
    """What the master says of an attempt's workers (ALIVE, DECOMMISSIONED, DEAD), by address."""
    name = resource(attempt_id)
    workers = (view or {}).get("workers", ())
    return {str(worker["host"]): str(worker["state"]) for worker in workers if name in worker["resources"]}


class Workers:
    """The workers of attempts, by way of the node agents."""

    def __init__(self, master: Master, settings: SparkSettings) -> None:
        self._master, self._settings = master, settings

    def start(self, node: Node, attempt_id: str, home: SparkHome, *, gpus: bool = False) -> None:
        """Start an attempt's worker on a node, once for ever; with `gpus` it has the node's.

        Raises RunnerError if it cannot be started, or the node lacks GPUs.
        """
        try:
            client = connect(node)
            if known_process(client, process_id(attempt_id)) is None:
                self._start(client, node, attempt_id, home, node.gpus if gpus else 0)
        except NodeError as error:
            raise RunnerError(f"no Spark worker on {node.instance_id}: {error}") from error

    def drain(self, node: Node, attempt_id: str) -> None:
        """Decommission an attempt's worker on a node. Raises RunnerError."""
        try:
            with suppress(NodeUnknown):
                connect(node).signal(process_id(attempt_id), "PWR")
        except NodeError as error:
            raise RunnerError(f"{node.instance_id} cannot be drained: {error}") from error

    def end(self, node: Node, attempt_id: str) -> None:
        """End an attempt's worker on a node, with its executor.

        A node that does not answer is gone or will be; an executor without its driver ends by itself.
        """
        with suppress(NodeError):
            connect(node).stop_process(process_id(attempt_id), wait_s=_END_S)

    def gone(
        self,
        nodes: Sequence[Node],
        attempt_id: str,
        view: Mapping[str, Any] | None,
        up_s: float,
        *,
        sure: bool,
    ) -> list[str]:
        """Why nodes can do nothing more for an attempt, one line for each such node.

        `sure`: only what is certain; else also nodes that just do not answer. `view` None: the master
        cannot be asked.
        """
        states = known_states(attempt_id, view)
        late = view is not None and min(up_s, self._master.up_s()) > self._settings.lost_after_s
        found = []
        for node in nodes:
            state = states.get(node.address)
            if state == "ALIVE" and sure:
                continue
            silent = not sure or state == "DEAD" or (state is None and late)
            problem = self._problem(node, attempt_id, silent)
            if problem:
                found.append(problem)
        return found

    def _problem(self, node: Node, attempt_id: str, silence_counts: bool) -> str:
        worker = process_id(attempt_id)
        try:
            client = connect(node)
            process = known_process(client, worker)
            if process is None:
                return f"{node.instance_id} has no worker"
            if process.state == "running":
                return ""
            last = last_error(client.last_log(worker).decode(errors="replace"))
            return f"the worker on {node.instance_id} ended" + (f": {last}" if last else "")
        except NodeRefused:
            return ""
        except NodeUnreachable:
            return f"{node.instance_id} does not answer" if silence_counts else ""

    def _start(self, client: NodeClient, node: Node, attempt_id: str, home: SparkHome, gpus: int) -> None:
        folder = f"spark/{attempt_id}"
        name = resource(attempt_id)
        status = client.status()
        workdir, found = status.workdir, len(status.gpus or ())
        if found < gpus:
            raise RunnerError(f"{node.instance_id} has {found} GPUs, not {gpus} {status.no_gpus}".strip())
        # What the agent has seen, in the place of a discovery script: that would need nvidia-smi on the node.
        # As in CUDA, the first GPU that the node's processes see is 0.
        offered = [
            {"id": {"componentName": "spark.worker", "resourceName": what}, "addresses": addresses}
            for what, addresses in ((name, ["0"]), (GPU, [str(index) for index in range(gpus)]))
            if addresses
        ]
        client.put_file(f"{folder}/resources.json", json.dumps(offered).encode())
        conf = secured() | {
            "spark.decommission.enabled": "true",
            "spark.worker.timeout": "30",
            # A worker that knocks while a new master still reads what the old one knew is taken for an empty
            # one, and its executors are replaced. The master will call; so knock seldom.
            "spark.worker.initialRegistrationRetries": "1",
            f"spark.worker.resource.{name}.amount": "1",
            "spark.worker.resourcesFile": f"{workdir}/{folder}/resources.json",
        }
        if gpus:
            conf[f"spark.worker.resource.{GPU}.amount"] = str(gpus)
        client.put_file(f"{folder}/worker.conf", properties(conf).encode())
        spark_home = self._settings.node_spark_home or str(home.path)
        java_home = self._settings.node_java_home or home.java_home
        client.start_process(
            ProcessSpec(
                process_id=process_id(attempt_id),
                argv=(
                    f"{spark_home}/bin/spark-class",
                    "org.apache.spark.deploy.worker.Worker",
                    "--host",
                    node.address,
                    "--webui-port",
                    "0",
                    "--cores",
                    str(node.vcpus),
                    "--memory",
                    f"{executor_memory_mib(node.memory_gib)}m",
                    "--work-dir",
                    f"{workdir}/{folder}/work",
                    "--properties-file",
                    f"{workdir}/{folder}/worker.conf",
                    self._master.url,
                ),
                env={
                    "SPARK_HOME": spark_home,
                    # Its own: Spark drops all shuffle files of an address together with one worker there.
                    "SPARK_LOCAL_IP": node.address,
                    "SPARK_LOCAL_DIRS": f"{workdir}/{folder}/local",
                    "SPARK_WORKER_OPTS": DAEMON_OPTIONS,
                    "SPARK_LAUNCHER_OPTS": DAEMON_OPTIONS,
                    "SPARK_DAEMON_MEMORY": self._settings.daemon_memory,
                    "PYSPARK_PYTHON": self._settings.node_python or sys.executable,
                    "_SPARK_AUTH_SECRET": self._master.secret,
                }
                | ({"JAVA_HOME": java_home} if java_home else {}),
                # A notice of interruption decommissions it, even if the scheduler is away just then. It stays
                # after that, so there is no grace to wait for when it is to end.
                stop_signal="PWR",
                stop_grace_s=0.0,
            )
        )
