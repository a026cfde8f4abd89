"""One measured number, its bar, and how far it is from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """A number and what it is measured against.

    Attributes:
        name: what was measured.
        value: the number.
        unit: its unit.
        bar: what it must reach (or must not exceed); None where nothing was promised.
        higher_is_better: whether the bar is a minimum.
        note: how it was measured, where the name does not say it.
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    higher_is_better: bool = True
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than the bar; 1 or more meets it. None without a bar."""
        if self.bar is None:
            return None
        return self.value / self.bar if self.higher_is_better else self.bar / self.value


@dataclass(frozen=True)
class Benchmark:
    """Something that can be measured.

    Attributes:
        name: what `--only` calls it.
        title: one line for people.
        run: yields the measurements, one after the other.
        long: whether it takes minutes and is left out unless asked for.
    """

    name: str
    title: str
    run: Callable[[], Iterator[Measurement]]
    long: bool = False


def measured_apart(module: str) -> Any:
    """What a module prints as JSON when it is run in a process of its own, whose memory is its alone.

    Raises:
        ValueError: if it fails; its last line.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=Path(__file__).resolve().parent.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"{module} could not be run: {''.join(done.stderr.splitlines()[-1:])}")
    return json.loads(done.stdout)
