"""Where the files of a workflow lie, and what moving them takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.simulation.workflows.episodes.case import Case, Floats


class Files:
    """The copies of all files. Each region has one store, which its instances and owned clusters share.

    Args:
        case: the episode.

    Attributes:
        there_s: [F, R] when a copy is there; infinite where none is or comes.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self.there_s = case.given_s.copy()

    def moved(self, step: int, now_s: float) -> tuple[Floats, Floats]:
        """([R] seconds until all that a step reads is in a region, [R] USD for moving it there)."""
        case, numbers = self._case, self._case.reads[step]
        if not len(numbers):
            return np.zeros(len(case.regions)), np.zeros(len(case.regions))
        arrives_s, usd = self._arrivals(numbers, now_s)
        return arrives_s.max(0) - now_s, usd.sum(0)

    def move(self, step: int, region: int, now_s: float) -> None:
        """Begin to copy what a step reads to a region; the copies stay."""
        numbers = self._case.reads[step]
        if len(numbers):
            arrives_s, _ = self._arrivals(numbers, now_s)
            self.there_s[numbers, region] = arrives_s[:, region]

    def write(self, step: int, region: int, now_s: float) -> None:
        """What a step writes is in its region when it ends."""
        self.there_s[self._case.writes[step], region] = now_s

    def _arrivals(self, numbers: NDArray[np.int64], now_s: float) -> tuple[Floats, Floats]:
        """([n, R] when each file is in a region, [n, R] USD): from the copy there, else the cheapest one."""
        case = self._case
        there_s = np.maximum(self.there_s[numbers], now_s)
        moving_s = case.conditions.latency_s + case.gb[numbers] / case.conditions.gb_s
        present = np.isfinite(there_s)
        arrives_s = np.where(present, there_s, (there_s.min(1) + moving_s)[:, None])
        sources = np.where(present[:, :, None], case.egress_usd_gb[None], np.inf).min(1)
        return arrives_s, sources * case.gb[numbers][:, None]
