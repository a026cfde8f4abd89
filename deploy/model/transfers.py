"""Time and price of moving data between regions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spotweave.deploy.billing import CHARGES_PER_USD


class Move(NamedTuple):
    """Time and price of moving all that a task needs into a region."""

    seconds: float
    usd: float


@dataclass(frozen=True)
class Transfers:
    """Prices and times of moving a GB; what is not in the tables is free and takes no time."""

    regions: tuple[str, ...] = ()  # possible destinations
    usd_gb: Mapping[tuple[str, str], float] = field(default_factory=dict)  # by (from region, to region)
    seconds_gb: Mapping[tuple[str, str], float] = field(default_factory=dict)  # by (from region, to region)
    # of a GB that leaves a region for another cloud, by region
    internet_usd_gb: Mapping[str, float] = field(default_factory=dict)

    def joined(self, *others: Transfers) -> Transfers:
        """Join several clouds' transfers: between clouds, data go over the Internet."""
        listed = (self, *others)
        between = {
            (start, end): usd
            for one in listed
            for start, usd in one.internet_usd_gb.items()
            for other in listed
            if other is not one
            for end in other.regions
        }
        return Transfers(
            regions=tuple(region for one in listed for region in one.regions),
            usd_gb=between | {move: usd for one in listed for move, usd in one.usd_gb.items()},
            seconds_gb={move: seconds for one in listed for move, seconds in one.seconds_gb.items()},
        )

    def moves(self, loads: Sequence[tuple[str, float]]) -> dict[str, Move]:
        """By region: what moving loads, (region, GB) each, there takes, in whole seconds and charges."""
        return {region: self._move(loads, region) for region in self.regions} if loads else {}

    def _move(self, loads: Sequence[tuple[str, float]], region: str) -> Move:
        seconds = charges = 0.0
        for start, size_gb in loads:
            seconds += size_gb * self.seconds_gb.get((start, region), 0.0)
            charges += size_gb * (self.usd_gb.get((start, region), 0.0) * CHARGES_PER_USD)
        return Move(math.ceil(seconds), int(charges + 0.5) / CHARGES_PER_USD)
