"""How full each offer has been lately: the history that snapshots show."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from envs.simulation.snapshot import HISTORY_STEPS

SAMPLE_S = 300.0
"""Between two samples, as in the simulated market."""
MEAN_STEPS = 100


class Occupancy:
    """The latest `HISTORY_STEPS` samples of used instances by offer, at whole multiples of `SAMPLE_S`."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[int]] = {}
        self._taken = 0
        self._next_s: float | None = None
        self._used: Mapping[str, int] = {}

    @classmethod
    def of(cls, histories: Mapping[str, Iterable[int]]) -> Occupancy:
        """With given samples of used instances by offer, the latest last."""
        made = cls()
        for offer, history in histories.items():
            made._samples[offer] = deque(history, maxlen=HISTORY_STEPS)
            made._taken = max(made._taken, len(made._samples[offer]))
        return made

    def sample(self, now_s: float) -> None:
        """Take every sample that is due up to `now_s`: of what was in use since the latest `hold`."""
        if self._next_s is None:
            self._next_s = math.ceil(now_s / SAMPLE_S) * SAMPLE_S
        while self._next_s <= now_s:
            for offer in {*self._samples, *self._used}:
                ring = self._samples.setdefault(offer, deque(maxlen=HISTORY_STEPS))
                ring.append(self._used.get(offer, 0))
            self._taken += 1
            self._next_s += SAMPLE_S

    def hold(self, used: Mapping[str, int]) -> None:
        """This many instances are in use on each offer from now on; those left out have none."""
        self._used = dict(used)

    def ratios(self, offer: str, quota: int) -> NDArray[np.float32]:
        """(HISTORY_STEPS,) used / quota within 0..1, latest last, 0 before the first sample."""
        row = np.zeros(HISTORY_STEPS, np.float32)
        ring = self._samples.get(offer)
        if ring and quota > 0:
            row[HISTORY_STEPS - len(ring) :] = np.minimum(1.0, np.array(ring, np.float32) / quota)
        return row

    def mean(self, offer: str, quota: int) -> float:
        """Mean ratio of the latest 100 samples, those among them in which the offer was not used yet."""
        ring = self._samples.get(offer)
        if not ring or quota <= 0:
            return 0.0
        latest = list(ring)[-MEAN_STEPS:]
        return min(1.0, sum(latest) / (min(self._taken, MEAN_STEPS) * quota))
