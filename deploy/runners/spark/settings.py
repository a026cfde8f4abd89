"""What the Spark runner is told, and what it finds on the machine."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spotweave.deploy.runners.detached import Limits
from spotweave.deploy.security.sandbox import NO_SANDBOX, Sandbox

OLDEST_JAVA = 17
DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A daemon does little: the small collector and the quick compiler halve its memory and the time to start."""


@dataclass(frozen=True)
class SparkSettings:
    """Settings of the Spark runner."""

    # folder of the runner's own; made with mode 0700. The same folder finds the same cluster again.
    state: Path
    # of the scheduler's machine, as nodes reach it: master and drivers listen there only
    address: str = "127.0.0.1"
    node_spark_home: str | None = None  # SPARK_HOME on the nodes; None: as here
    # Python of the nodes' executors, the same minor version as here; None: this one
    node_python: str | None = None
    node_java_home: str | None = None  # JAVA_HOME on the nodes; None: as here
    # folder or URI (s3a://...) under which each job gets its checkpoint folder; None: in the job's folder on
    # the scheduler's machine, which does only where the nodes see that too
    checkpoints: str | None = None
    driver_memory: str = "1g"  # heap of a driver, as Spark writes sizes; a job's conf may say otherwise
    daemon_memory: str = "256m"  # heap of the master and of each worker, as Java writes sizes
    start_timeout_s: float = 90.0  # how long the master may take to come up
    lost_after_s: float = 90.0  # a node that neither answers nor is known to the master is lost after so long
    sandbox: Sandbox = NO_SANDBOX  # around the master and drivers
    limits: Limits = field(default_factory=Limits)  # of each driver


@dataclass(frozen=True)
class SparkHome:
    """A usable Spark."""

    path: Path  # SPARK_HOME
    java_home: str = ""  # JAVA_HOME, "" where only PATH says it

    def environment(self, address: str) -> dict[str, str]:
        """Environment of a process that listens on an address; nothing else is inherited."""
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "SPARK_HOME": str(self.path),
            "SPARK_LOCAL_IP": address,
            "SPARK_LAUNCHER_OPTS": DAEMON_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        return env | ({"JAVA_HOME": self.java_home} if self.java_home else {})


def find_spark() -> SparkHome:
    """Spark of the `pyspark` package, with a Java that runs it. Raises ValueError: one line."""
    return _find(os.environ.get("PATH", os.defpath), os.environ.get("JAVA_HOME", ""))


@functools.cache
def _find(path: str, java_home: str) -> SparkHome:
    # Not imported: it would take a second, and only its place is needed.
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ValueError("Spark jobs need the package pyspark: pip install 'spotweave[spark]'")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java", path=path)
    install = "install one (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        raise ValueError(f"Spark jobs need Java {OLDEST_JAVA} or newer, and there is none on PATH: {install}")
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(
            f"Spark jobs need Java {OLDEST_JAVA} or newer, and {java} does not run: {install}"
        ) from error
    version = java_version(told)
    if version is None or version < OLDEST_JAVA:
        said = "an unknown version" if version is None else f"Java {version}"
        raise ValueError(f"Spark jobs need Java {OLDEST_JAVA} or newer, and {java} is {said}: {install}")
    return SparkHome(Path(found.submodule_search_locations[0]), java_home)


def java_version(told: str) -> int | None:
    """The feature release in what `java -version` prints: 17 of "17.0.15", 8 of "1.8.0_392"."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def properties(values: Mapping[str, str]) -> str:
    """A Java properties file. Every character that means something there is escaped."""

    def escaped(text: str) -> str:
        return "".join(
            character
            if character.isascii() and (character.isalnum() or character in "._-/$%,;@+*()[]{}<>'\"&|?~^`")
            else re.sub("....", r"\\u\g<0>", character.encode("utf-16-be").hex())
            for character in text
        )

    return "".join(f"{escaped(key)}={escaped(value)}\n" for key, value in values.items())
