"""A Spark worker on a node: one per attempt and node, only for that attempt's executors.

Standalone Spark has no labels for nodes. A custom resource does their work: each worker offers one unit of a
resource that is named after the attempt, and the attempt's application asks for one unit per executor. So
executors run on their own nodes only, one on each, and those of an earlier attempt never get in the way.
"""

from __future__ import annotations

import json
import re
import sys

from deploy.model.tasks import Node
from deploy.node.api import ProcessSpec
from deploy.node.client import NodeClient
from deploy.runners.spark.master import DAEMON_OPTIONS, Master, secured
from deploy.runners.spark.settings import SparkHome, SparkSettings, properties

SMALLEST_MEMORY_GIB = 1.0
_SMALLEST_HEAP_MIB = 512
_DAEMON_MIB = 256
_HEAP_SHARE = 0.75
"""Of what the worker's own process leaves; the rest is for Python processes and memory outside the heap."""


def process_id(attempt_id: str) -> str:
    """Of an attempt's worker, on every node."""
    return f"spark-{attempt_id}"


def resource(attempt_id: str) -> str:
    """The custom resource that ties an attempt's executors to its workers; Spark's names hold no dots."""
    return re.sub(r"[^A-Za-z0-9-]", "-", f"attempt-{attempt_id}")


def executor_memory_mib(memory_gib: float) -> int:
    """Heap of the executor on a node with this memory."""
    return max(_SMALLEST_HEAP_MIB, int((memory_gib * 1024 - _DAEMON_MIB) * _HEAP_SHARE))


def start_worker(
    client: NodeClient, node: Node, attempt_id: str, master: Master, home: SparkHome, settings: SparkSettings
) -> None:
    """Start an attempt's worker on a node, once for ever.

    Raises:
        NodeError: if the node cannot, or cannot be asked.
    """
    folder = f"spark/{attempt_id}"
    name = resource(attempt_id)
    workdir = client.status().workdir
    offered = [{"id": {"componentName": "spark.worker", "resourceName": name}, "addresses": ["0"]}]
    client.put_file(f"{folder}/resources.json", json.dumps(offered).encode())
    conf = secured() | {
        "spark.decommission.enabled": "true",
        "spark.worker.timeout": "30",
        f"spark.worker.resource.{name}.amount": "1",
        "spark.worker.resourcesFile": f"{workdir}/{folder}/resources.json",
    }
    client.put_file(f"{folder}/worker.conf", properties(conf).encode())
    spark_home = settings.node_spark_home or str(home.path)
    java_home = settings.node_java_home or home.java_home
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
                master.url,
            ),
            env={
                "SPARK_HOME": spark_home,
                # Its own: Spark drops all shuffle files of an address together with one worker there.
                "SPARK_LOCAL_IP": node.address,
                "SPARK_LOCAL_DIRS": f"{workdir}/{folder}/local",
                "SPARK_WORKER_OPTS": DAEMON_OPTIONS,
                "SPARK_DAEMON_MEMORY": settings.daemon_memory,
                "PYSPARK_PYTHON": settings.node_python or sys.executable,
                "_SPARK_AUTH_SECRET": master.secret,
            }
            | ({"JAVA_HOME": java_home} if java_home else {}),
            # A notice of interruption decommissions it, even if the scheduler is away just then. It stays
            # after that, so there is no grace to wait for when it is to end.
            stop_signal="PWR",
            stop_grace_s=0.0,
        )
    )
