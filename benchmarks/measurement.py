"""What benchmarks share: a measured number and its bar, one core, a process of its own, the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch

from spotweave.training.federated.measuring.dummy import processor

ROOT = Path(__file__).resolve().parent.parent
Result = TypeVar("Result")
_ALONE = """
import importlib, json, structlog, sys
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
print(json.dumps(importlib.import_module(sys.argv[1]).alone(*json.loads(sys.argv[2]))))
"""


@dataclass(frozen=True)
class Measurement:
    """A number and what it is measured against."""

    name: str  # what was measured
    value: float  # the number
    unit: str  # its unit
    bar: float | None = None  # what it must reach (or must not exceed); None where nothing was promised
    higher_is_better: bool = True  # whether the bar is a minimum
    note: str = ""  # how it was measured, where the name does not say it

    @property
    def ratio(self) -> float | None:
        """How many times better than the bar; 1 or more meets it. None without a bar."""
        if self.bar is None:
            return None
        return self.value / self.bar if self.higher_is_better else self.bar / self.value


def at_most(name: str, value: float, unit: str, bar: float | None = None, note: str = "") -> Measurement:
    """A number that must not exceed its bar."""
    return Measurement(name, value, unit, bar, higher_is_better=False, note=note)


@dataclass(frozen=True)
class Benchmark:
    """Something that can be measured."""

    name: str  # what `--only` calls it
    title: str  # one line for people
    # yields the measurements, one after the other. With `smallest=True` it takes seconds and its figures mean
    # nothing
    measure: Callable[..., Iterator[Measurement]]
    long: bool = False  # whether it takes minutes and is left out unless asked for


@contextmanager
def one_core() -> Iterator[None]:
    """Run on one core: the process is pinned to it where the system can, and torch uses one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores is not None:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


def timed(work: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """What work gives, and the CPU seconds of one core that it takes: neighbours cost nothing."""
    with one_core():
        started = time.process_time()
        result = work(*arguments)
        return result, time.process_time() - started


def describe() -> dict[str, object]:
    """What a reader must know to compare numbers of two machines."""
    packages = ("numpy", "numba", "torch", "gymnasium")
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def cpu_s(*processes: psutil.Process) -> float:
    """CPU seconds of these processes so far."""
    times = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in times))


def run_alone(module: str, *arguments: str | float) -> Any:
    """What `alone(*arguments)` of a module gives, as JSON, in a process with one thread of BLAS and torch.

    Raises:
        ValueError: if it fails, with the last line of its errors.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, module, json.dumps(arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"{module} could not be measured: {''.join(done.stderr.splitlines()[-1:])}")
    return json.loads(done.stdout)
