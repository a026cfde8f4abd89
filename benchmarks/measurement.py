"""One measured number, its bar, and how far it is from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


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
        measure: yields the measurements, one after the other. With `smallest=True` it takes seconds and its
            figures mean nothing.
        long: whether it takes minutes and is left out unless asked for.
    """

    name: str
    title: str
    measure: Callable[..., Iterator[Measurement]]
    long: bool = False
