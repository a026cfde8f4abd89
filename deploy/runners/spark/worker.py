"""A Spark worker on a node: one per attempt and node, only for that attempt's executors.

Standalone Spark has no labels for nodes. A custom resource does their work: each worker offers one unit of a
resource that is named after the attempt, and the attempt's application asks for one unit per executor. So
executors run on their own nodes only, one on each, and those of an earlier attempt never get in the way.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from deploy.model.tasks import Node
from deploy.node.api import ProcessSpec
from deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnreachable
from deploy.runners.base import RunnerError
from deploy.runners.nodes import UNKNOWN, connect, known_process
from deploy.runners.spark.master import Master, secured
from deploy.runners.spark.reason import last_error
from deploy.runners.spark.settings import DAEMON_OPTIONS, SparkHome, SparkSettings, properties

SMALLEST_MEMORY_GIB = 1.0
GPU = "gpu"
"""Spark's name of the resource."""
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
        self._master = master
        self._settings = settings

    def start(self, node: Node, attempt_id: str, home: SparkHome, *, gpus: bool = False) -> None:
        """Start an attempt's worker on a node, once for ever; with `gpus` it has the node's.

        Raises:
            RunnerError: if it cannot be started, or the node lacks GPUs.
        """
        try:
            with connect(node) as client:
                if known_process(client, process_id(attempt_id)) is None:
                    self._start(client, node, attempt_id, home, node.gpus if gpus else 0)
        except NodeError as error:
            raise RunnerError(f"no Spark worker on {node.instance_id}: {error}") from error

    def drain(self, node: Node, attempt_id: str) -> None:
        """Decommission an attempt's worker on a node. Raises RunnerError."""
        try:
            with connect(node) as client:
                client.signal(process_id(attempt_id), "PWR")
        except NodeRefused as refusal:
            if refusal.code != UNKNOWN:
                raise RunnerError(f"{node.instance_id} cannot be drained: {refusal}") from refusal
        except NodeUnreachable as error:
            raise RunnerError(f"{node.instance_id} cannot be drained: {error}") from error

    def end(self, node: Node, attempt_id: str) -> None:
        """End an attempt's worker on a node, with its executor.

        A node that does not answer is gone or will be; an executor without its driver ends by itself.
        """
        with suppress(NodeError), connect(node) as client:
            client.stop_process(process_id(attempt_id), wait_s=_END_S)

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

        Args:
            nodes: of the attempt.
            attempt_id: which.
            view: of the master, None if it cannot be asked.
            up_s: seconds since the attempt's driver was started.
            sure: only what is certain; else also nodes that just do not answer.
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
            with connect(node) as client:
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
