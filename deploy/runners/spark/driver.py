"""The driver of an attempt: what a job may ask for, and how `spark-submit` is called."""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from spotweave.deploy.model.jobs import JobSpec, SparkBatch, SparkStreaming
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.model.workflows import FILE_CONF, SparkProgram, split_names
from spotweave.deploy.runners.detached import require_startable
from spotweave.deploy.runners.spark.application import ATTEMPT_CONF
from spotweave.deploy.runners.spark.cluster import (
    GPU,
    SMALLEST_MEMORY_GIB,
    executor_memory_mib,
    resource,
    secured,
)
from spotweave.deploy.runners.spark.settings import SparkSettings

_RESERVED_CONF = (
    "spark.acls.",
    "spark.app.id",
    "spark.authenticate",
    "spark.cores.max",
    "spark.decommission.",
    "spark.deploy.",
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.driver.port",
    "spark.dynamicAllocation.",
    "spark.eventLog.",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.resource.",
    "spark.io.encryption.",
    "spark.local.dir",
    "spark.master",
    "spark.redaction.",
    "spark.network.crypto.",
    "spark.remote",
    "spark.shuffle.service.",
    "spark.spotweave.",
    "spark.sql.streaming.checkpointLocation",
    "spark.storage.decommission.",
    "spark.submit.deployMode",
    "spark.task.resource.",
    "spark.ui.",
)
_GPU_CONF = (f"spark.executor.resource.{GPU}.", f"spark.task.resource.{GPU}.")
"""Which a job may set, as far as it asks for GPUs."""
_REDACTED = r"(?i)secret|password|token|credential|access.?key|^spark\.executorEnv\.|^sun\.java\.command$"
_PYTHON_SUFFIXES = (".py", ".zip", ".egg")
_MANIFEST_BYTES, _DIRECTORY_BYTES = 64 << 10, 8 << 20
_END_MARK, _LARGE_MARK, _END_BYTES = b"PK\5\6", b"PK\6\7", 22 + 0xFFFF
"""Marks and size of the record at the end of a zip file, which holds its directory's size."""
_RESERVED_ENV = ("SPOTWEAVE_", "SPARK_", "_SPARK", "PYSPARK_", "JAVA_HOME")


def spark_work(spec: JobSpec) -> SparkBatch | SparkStreaming:
    """The Spark part of a job. Raises ValueError for another kind."""
    if isinstance(spec.work, SparkBatch | SparkStreaming):
        return spec.work
    raise ValueError(f"kind {spec.work.kind} is not a Spark job")


def check_job(spec: JobSpec, folder: Path) -> None:
    """Refuse a job that cannot run, whatever it is given. Raises ValueError: one line."""
    work = spark_work(spec)
    require_startable({"script": work.script}, work.args, spec.env, {"conf": work.conf})
    _check_script(work.script, folder)
    for name in work.named_files:
        _check_file(name, folder)
    for name in work.py_files:
        if Path(name).suffix not in _PYTHON_SUFFIXES:
            raise ValueError(
                f"py_files has {name!r}: expected .py, .zip or .egg files (spotweave submit packs folders)"
            )
    for key in work.conf:
        if not key.startswith("spark."):
            raise ValueError(f"conf has {key!r}: Spark reads only names that begin with spark.")
        if key.startswith(_GPU_CONF):
            _check_gpus(key, work.conf[key], spec)
            continue
        # "spark.executor.memoryOverhead" is not "spark.executor.memory".
        if any(key == name or (name.endswith(".") and key.startswith(name)) for name in _RESERVED_CONF) or (
            key.startswith("spark.authenticate")
        ):
            raise ValueError(
                f"conf sets {key}, which the scheduler sets itself (from resources): leave it out"
            )
    for key in spec.env:
        if key.startswith(_RESERVED_ENV):
            raise ValueError(f"env sets {key}, which the scheduler sets itself: leave it out")
    if spec.resources.memory_gib < SMALLEST_MEMORY_GIB:
        raise ValueError(
            f"resources.memory_gib is {spec.resources.memory_gib:g}: "
            f"an instance of a Spark job needs at least {SMALLEST_MEMORY_GIB:g}"
        )
    if isinstance(work, SparkStreaming) and work.conf.get("spark.eventLog.enabled") == "false":
        raise ValueError("conf switches the event log off, from which batches are counted: leave it out")


def _check_gpus(key: str, value: str, spec: JobSpec) -> None:
    most = spec.resources.gpu_count
    if not most:
        raise ValueError(f"conf sets {key}, and resources asks for no GPU: give resources.gpus")
    if key == f"spark.executor.resource.{GPU}.amount" and value not in map(str, range(1, most + 1)):
        raise ValueError(f"conf sets {key} to {value!r}: expected 1 to {most}, as resources asks for GPUs")
    if key == f"spark.task.resource.{GPU}.amount" and not _task_share(value, most):
        raise ValueError(
            f"conf sets {key} to {value!r}: expected a share of a GPU up to 0.5, or a number from 1 to {most}"
        )


def _task_share(value: str, most: int) -> bool:
    """Whether Spark takes this as what a task needs of GPUs."""
    try:
        share = float(value)
    except ValueError:
        return False
    return 0 < share <= 0.5 or (share <= most and share.is_integer() and share > 0)


def _check_file(name: str, folder: Path) -> None:
    if not _place("file", name, folder).is_file():
        raise ValueError(
            f"file {name!r}, which py_files or conf names, does not exist in the job's folder: send it with "
            "the job, or give a URI that every node can read (s3a://...)"
        )


def _place(what: str, name: str, folder: Path) -> Path:
    place = folder / name
    if os.path.isabs(name) or not place.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{what} {name!r} lies outside of the job's folder: give a path below the job file")
    return place


def _check_script(script: str, folder: Path) -> None:
    place = _place("script", script, folder)
    if not place.is_file():
        raise ValueError(
            f"script {script!r} does not exist in the job's folder: expected a Python file or a jar"
        )
    if place.suffix == ".py":
        return
    if place.suffix != ".jar":
        raise ValueError(f"script {script!r}: expected a Python file (.py) or a jar (.jar)")
    try:
        manifest = _manifest(place)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise ValueError(f"script {script!r} is no jar with a manifest") from error
    except _TooLargeError as error:
        raise ValueError(f"script {script!r}: {error}") from error
    if b"Main-Class:" not in manifest:
        raise ValueError(f"script {script!r}: its manifest names no Main-Class, so nothing says what to run")


class _TooLargeError(Exception):
    """More than is read of a jar; the message says what."""


def _manifest(place: Path) -> bytes:
    """A jar's manifest. What is unpacked is bounded, and so is the directory that comes before it."""
    with place.open("rb") as file:
        file.seek(max(0, place.stat().st_size - _END_BYTES))
        tail = file.read(_END_BYTES)
        at = tail.rfind(_END_MARK)
        if at < 0 or len(tail) < at + 16:
            raise zipfile.BadZipFile
        (directory,) = struct.unpack("<L", tail[at + 12 : at + 16])
        # A record for larger files, where there is one, would be believed more than this one.
        if directory > _DIRECTORY_BYTES or tail[max(0, at - 20) : at].startswith(_LARGE_MARK):
            raise _TooLargeError(
                f"a jar's list of files may have {_DIRECTORY_BYTES >> 20} MiB, and no zip64 record"
            )
        with zipfile.ZipFile(file) as jar, jar.open("META-INF/MANIFEST.MF") as packed:
            content = packed.read(_MANIFEST_BYTES + 1)
    if len(content) > _MANIFEST_BYTES:
        raise _TooLargeError(f"its manifest has more than {_MANIFEST_BYTES >> 10} KiB")
    return content


@dataclass(frozen=True)
class DriverPlace:
    """An attempt's driver, and what it must know of its cluster."""

    assignment: Assignment
    master_url: str
    secret: str
    ui_port: int  # for its web pages
    checkpoints: str  # the job's checkpoint folder or URI
    events: Path  # where its event log goes


def variables(place: DriverPlace) -> dict[str, str]:
    """Environment variables for the job's code, on the driver and on executors."""
    assignment = place.assignment
    work = spark_work(assignment.spec)
    given = dict(assignment.spec.env) | {
        "SPOTWEAVE_JOB_ID": assignment.key.job_id,
        "SPOTWEAVE_ATTEMPT": str(assignment.attempt),
        "SPOTWEAVE_CHECKPOINT_DIR": place.checkpoints,
    }
    if isinstance(work, SparkStreaming):
        given |= {
            "SPOTWEAVE_PERIOD_S": f"{work.period_s:g}",
            "SPOTWEAVE_BATCH_DEADLINE_S": f"{work.batch_deadline_s:g}",
        }
        if work.batches is not None:
            given["SPOTWEAVE_BATCHES"] = str(work.batches)
    return given


def configuration(place: DriverPlace, settings: SparkSettings) -> dict[str, str]:
    """The application's whole conf. It holds the cluster's secret: for a file of mode 0600, not for argv."""
    assignment, spec, nodes = place.assignment, place.assignment.spec, place.assignment.nodes
    work = spark_work(spec)
    conf = {"spark.app.name": spec.name, "spark.driver.memory": settings.driver_memory} | dict(work.conf)
    conf |= _files(work, Path(assignment.workdir))
    gpus = min(node.gpus for node in nodes) if spec.resources.gpu_count else 0
    if gpus:
        amounts = {"executor": str(gpus), "task": "1"}
        conf = {f"spark.{of}.resource.{GPU}.amount": amount for of, amount in amounts.items()} | conf
    conf |= secured() | {
        "spark.master": place.master_url,
        "spark.submit.deployMode": "client",
        "spark.authenticate.secret": place.secret,
        ATTEMPT_CONF: assignment.attempt_id,
        "spark.driver.host": settings.address,
        "spark.driver.bindAddress": settings.address,
        "spark.ui.port": str(place.ui_port),
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.killEnabled": "false",
        "spark.executor.cores": str(min(node.vcpus for node in nodes)),
        "spark.executor.memory": f"{executor_memory_mib(min(node.memory_gib for node in nodes))}m",
        f"spark.executor.resource.{resource(assignment.attempt_id)}.amount": "1",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        "spark.sql.streaming.checkpointLocation": place.checkpoints,
    }
    # Spark's web page answers whoever reaches its address, other jobs on this machine among them.
    given = "|".join(re.escape(key) for key in work.conf)
    conf["spark.redaction.regex"] = f"{_REDACTED}|^({given})$"
    conf |= {f"spark.executorEnv.{key}": value for key, value in variables(place).items()}
    if isinstance(work, SparkStreaming):
        conf |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": place.events.resolve().as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "true",
            "spark.eventLog.rolling.maxFileSize": "10m",
        }
    return conf


def _files(work: SparkProgram, workdir: Path) -> dict[str, str]:
    """The settings that name files, those of the job's folder by their absolute paths."""
    found = {key: split_names(work.conf[key]) for key in FILE_CONF if key in work.conf}
    if work.py_files:
        found["spark.submit.pyFiles"] = [*work.py_files, *found.get("spark.submit.pyFiles", ())]
    root = workdir.resolve()
    return {
        key: ",".join(name if ":" in name else str(root / name) for name in names)
        for key, names in found.items()
    }


def command(spark_submit: str, properties_file: Path, spec: JobSpec, workdir: Path) -> list[str]:
    """Command line of the driver."""
    work = spark_work(spec)
    script = (workdir / work.script).resolve()
    return [spark_submit, "--properties-file", str(properties_file), str(script), *work.args]
