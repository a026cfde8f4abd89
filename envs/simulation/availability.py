"""Synthetic availability of spot capacity: heavy-tailed spells with regional correlation.

Recorded V100 spot availability (nine AWS zones, 2023) has up-spells whose mean is many times their median,
and zones that fail together: correlation 0.25-0.59 inside a region, 0.03-0.27 across regions. A Poisson
revocation has neither property. The model here is a product of alternating renewal processes,

    available(zone, t) = own(zone, t) and regional(region of the zone, t) and common(t),

where each factor alternates between on- and off-spells. With up-shares p, q, g of the three factors the mean
is m = pqg, two zones of a region correlate by m(1 - qg) / (qg(1 - m)), zones of different regions by
m(1 - g) / (g(1 - m)), whatever the spells look like; so the spells can be fitted separately.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.simulation.streams import exp


class SpellLaw(Protocol):
    """A distribution of spell lengths in seconds."""

    @property
    def mean_s(self) -> float:
        """Expected length."""

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        """(n,) independent lengths."""

    def sample_residual(self, rng: np.random.Generator) -> float:
        """What is left of the spell that a random moment falls into."""


@dataclass(frozen=True)
class LognormalComponent:
    """One component of a mixture: exp(N(log_mean, log_sigma^2)) seconds with probability `weight`."""

    weight: float
    log_mean: float
    log_sigma: float


@dataclass(frozen=True)
class LognormalMixture:
    """Spells that are short mostly and very long sometimes."""

    components: tuple[LognormalComponent, ...]

    def __post_init__(self) -> None:
        total = sum(c.weight for c in self.components)
        if abs(total - 1.0) > 1e-9 or any(c.weight < 0 or c.log_sigma < 0 for c in self.components):
            raise ValueError(
                "a lognormal mixture needs weights >= 0 that sum to 1 and log_sigma >= 0: got "
                + ", ".join(f"(weight {c.weight}, log_sigma {c.log_sigma})" for c in self.components)
            )

    @cached_property
    def mean_s(self) -> float:
        """Expected length, seconds."""
        return float(sum(self._means_s))

    @cached_property
    def _means_s(self) -> list[float]:
        """Share of the mean that each component brings."""
        return [float(c.weight * math.exp(c.log_mean + c.log_sigma**2 / 2)) for c in self.components]

    @cached_property
    def _columns(self) -> tuple[Floats, Floats, Floats]:
        """Upper edges of all weights but the last, log_means and log_sigmas."""
        edges = np.cumsum([c.weight for c in self.components])[:-1]
        return (
            edges,
            np.array([c.log_mean for c in self.components]),
            np.array([c.log_sigma for c in self.components]),
        )

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        """(n,) independent lengths, seconds."""
        edges, log_means, log_sigmas = self._columns
        which = edges.searchsorted(rng.random(n), side="right")
        return exp(log_means[which] + log_sigmas[which] * rng.standard_normal(n))

    def sample_residual(self, rng: np.random.Generator) -> float:
        """What is left of the spell that a random moment falls into, seconds.

        The length-biased lognormal has log_mean + log_sigma^2, and the moment is uniform within it.
        """
        reached = np.cumsum(self._means_s)[:-1]
        which = int(reached.searchsorted(rng.random() * self.mean_s, side="right"))
        chosen = self.components[which]
        log_length = chosen.log_mean + chosen.log_sigma**2 + chosen.log_sigma * rng.standard_normal()
        return float(math.exp(log_length) * rng.random())


@dataclass(frozen=True)
class Exponential:
    """Memoryless spells: what "Poisson revocation" in the literature means."""

    mean_s: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean_s) and self.mean_s > 0):
            raise ValueError(f"the mean of an exponential spell must be positive seconds: got {self.mean_s}")

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        """(n,) independent lengths, seconds."""
        return rng.exponential(self.mean_s, n)

    def sample_residual(self, rng: np.random.Generator) -> float:
        """What is left of the spell that a random moment falls into, seconds: as long as a fresh one."""
        return float(rng.exponential(self.mean_s))


@dataclass(frozen=True)
class OnOff:
    """An alternating renewal process: on-spells from `up`, off-spells from `down`."""

    up: SpellLaw
    down: SpellLaw

    @property
    def up_share(self) -> float:
        """Long-run share of time that it is on."""
        return self.up.mean_s / (self.up.mean_s + self.down.mean_s)


@dataclass(frozen=True)
class SpellParameters:
    """Everything that `generate_availability` needs."""

    own: OnOff  # each zone's own process, independent of every other
    regional: OnOff | None = None  # shared by the zones of a region; None for no regional shocks
    common: OnOff | None = None  # shared by all zones; None for no common shocks

    @property
    def _shares(self) -> tuple[float, float, float]:
        regional = self.regional.up_share if self.regional else 1.0
        common = self.common.up_share if self.common else 1.0
        return self.own.up_share, regional, common

    @property
    def up_share(self) -> float:
        """Long-run mean availability of a zone."""
        return float(np.prod(self._shares))

    @property
    def correlation_within(self) -> float:
        """Long-run correlation of two zones of one region."""
        _, regional, common = self._shares
        return self.up_share * (1 - regional * common) / (regional * common * (1 - self.up_share))

    @property
    def correlation_across(self) -> float:
        """Long-run correlation of two zones of different regions."""
        common = self._shares[2]
        return self.up_share * (1 - common) / (common * (1 - self.up_share))


def poisson_parameters(mean_up_s: float, mean_down_s: float) -> SpellParameters:
    """Independent zones revoked by a Poisson process: an assumption of papers, not what recordings show."""
    return SpellParameters(OnOff(Exponential(mean_up_s), Exponential(mean_down_s)))


def generate_availability(
    rng: np.random.Generator,
    regions: Sequence[str],
    horizon_s: int,
    params: SpellParameters,
    tick_s: int = 195,
) -> list[StepSeries]:
    """Draw synthetic availability for zones that are named only by their region.

    The process is continuous, stationary from time 0, and looked at every `tick_s`, as the probes of the
    recordings were, so a spell shorter than a tick can go unseen. Zones draw from independent child streams:
    zone i's own process does not depend on how many zones follow it.

    Args:
        rng: source of randomness; the result depends on nothing else.
        regions: the region of each zone, e.g. ["us-central1", "us-central1", "us-east1"].
        horizon_s: length of each series in seconds.
        params: the spell laws, e.g. from `envs.traces.fitted`.
        tick_s: seconds between two looks; the default is that of the AWS recording.

    Returns:
        One series per zone, 1.0 where a launch could succeed and 0.0 elsewhere; rows only where it changes.

    Raises:
        ValueError: for a horizon or tick that is not positive.
    """
    if horizon_s <= 0 or tick_s <= 0:
        raise ValueError(f"horizon_s and tick_s must be positive: got {horizon_s} and {tick_s}")
    ticks_s = np.arange(0, horizon_s, tick_s, dtype=np.int64)
    # Regions in order of first appearance, each with a stream of its own; the common shocks come first.
    names = list(dict.fromkeys(regions))
    common_rng, regions_rng, zones_rng = rng.spawn(3)
    everywhere = _on_at(common_rng, params.common, ticks_s)
    regional = {
        name: everywhere & _on_at(stream, params.regional, ticks_s)
        for name, stream in zip(names, regions_rng.spawn(len(names)), strict=True)
    }
    return [
        _compress(ticks_s, regional[region] & _on_at(stream, params.own, ticks_s))
        for region, stream in zip(regions, zones_rng.spawn(len(regions)), strict=True)
    ]


def _on_at(rng: np.random.Generator, process: OnOff | None, ticks_s: Ints) -> Bools:
    """(T,) whether a stationary alternating process is on at each tick."""
    if process is None:
        return np.ones(len(ticks_s), dtype=np.bool_)
    starts_on = bool(rng.random() < process.up_share)
    current, other = (process.up, process.down) if starts_on else (process.down, process.up)
    # Time 0 falls inside a spell, into a long one more often than into a short one.
    reached_s = current.sample_residual(rng)
    pieces = [np.array([reached_s])]
    cycle_s = process.up.mean_s + process.down.mean_s
    while reached_s <= ticks_s[-1]:
        n = int((float(ticks_s[-1]) - reached_s) / cycle_s) + 8
        spells = np.empty(2 * n)
        spells[0::2] = other.sample(rng, n)
        spells[1::2] = current.sample(rng, n)
        pieces.append(reached_s + np.cumsum(spells))
        reached_s = float(pieces[-1][-1])
    # Each spell covers the ticks between its two switches, perhaps none.
    switches = ticks_s.searchsorted(np.concatenate(pieces), side="left")
    lengths = np.diff(switches, prepend=0, append=len(ticks_s))
    return np.repeat((np.arange(len(lengths)) % 2 == 0) == starts_on, lengths)


def _compress(ticks_s: Ints, on: Bools) -> StepSeries:
    rows = np.concatenate([[0], np.flatnonzero(on[1:] != on[:-1]) + 1])
    return StepSeries(ticks_s[rows], on[rows].astype(np.float64))
