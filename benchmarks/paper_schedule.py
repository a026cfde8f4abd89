"""The whole training schedule of Liu 2022, chapter 5: 1,500 episodes of 1,000 jobs."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measurement import Measurement
from benchmarks.memory import SMALLEST, run_training


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """Wall-clock time of the command, validation included, the table at the end left out."""
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
    yield Measurement(
        "paper's schedule", seconds / 60, "minutes", bar=10.0, higher_is_better=False, note=note
    )
    yield Measurement(
        "paper's schedule: memory", peak / 2**30, "GiB", bar=2.0, higher_is_better=False, note=note
    )
