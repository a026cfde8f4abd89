"""Peak memory of training commands, measured from outside, and how long they take."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.measurement import ROOT, Measurement, at_most

POLL_S = 0.05
SMALLEST = (
    "trainer.episodes=2",
    "trainer.lanes=2",
    "trainer.validation_episodes=1",
    "trainer.test_episodes=0",
)
"""A training of seconds, that says only whether the command runs."""


def run_training(*overrides: str) -> tuple[float, float]:
    """Run training/train.py in a scratch directory: (seconds, peak resident bytes of all its processes).

    Raises:
        ValueError: if it exits with another code than 0.
    """
    with tempfile.TemporaryDirectory(prefix="spotweave-bench-") as scratch:
        command = [sys.executable, str(ROOT / "training" / "train.py"), *overrides, f"out={scratch}/run"]
        log = Path(scratch) / "log.txt"
        started = time.monotonic()
        peak = 0
        with log.open("wb") as output:
            child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=scratch)
            try:
                while child.poll() is None:
                    peak = max(peak, _resident_bytes(child.pid))
                    time.sleep(POLL_S)
            finally:
                if child.poll() is None:
                    child.terminate()
                    child.wait()
        seconds = time.monotonic() - started
        if child.returncode != 0:
            tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise ValueError(f"{' '.join(command)} exited with {child.returncode}: {''.join(tail)}")
    return seconds, float(peak)


def _resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children; 0 once it has gone."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in family)
    except psutil.NoSuchProcess:
        return 0


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """`make train ARGS=trainer=quick`, with its table at the end."""
    _, peak = run_training("+env=multicloud", "trainer=quick", *(SMALLEST if smallest else ()))
    note = "training/train.py +env=multicloud trainer=quick, all processes"
    yield at_most("memory of training", peak / 2**30, "GiB", bar=2.0, note=note)


def measure_schedule(*, smallest: bool = False) -> Iterator[Measurement]:
    """The schedule of Liu 2022, chapter 5, by the clock: with validation, without the table at the end."""
    overrides: tuple[str, ...] = (
        "+env=multicluster",
        "agent=rl_lsfc",
        "trainer=paper",
        "trainer.test_episodes=0",
    )
    if smallest:
        overrides += (*SMALLEST, "env.n_jobs=20")
    seconds, peak = run_training(*overrides)
    note = f"training/train.py {' '.join(overrides)}"
    yield at_most("paper's schedule", seconds / 60, "minutes", bar=10.0, note=note)
    yield at_most("paper's schedule: memory", peak / 2**30, "GiB", bar=2.0, note=note)
