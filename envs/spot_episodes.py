"""Episodes of spot jobs: recorded zones, and what is drawn around them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, cast

import numpy as np

from spotweave.envs.simulation.availability import generate_availability, poisson_parameters
from spotweave.envs.simulation.series import Bools, Floats, Ints, OfferTrace, StepSeries
from spotweave.envs.simulation.spot.lanes import Habits, JobSource, SpotJob
from spotweave.envs.simulation.spot.world import SpotWorld
from spotweave.envs.simulation.streams import SPLITS, Split, Streams, episode_sequence
from spotweave.envs.simulation.world import EpisodeKey, WorldError, at_least, require, shares
from spotweave.envs.traces.bundle import DAY_S, SPLIT_DAYS, TraceBundle, load_bundle

# The problems of the "Can't Be Late" leaderboards, and the days of the recording that each split may see.

RulesName = Literal["adrs_single", "adrs_multi"]

LEADERBOARD_DAYS = (
    (7.8, 10.3),
    (14.6, 17.1),
    (19.9, 22.4),
    (22.5, 25.0),
    (31.8, 34.3),
    (34.4, 36.9),
    (37.4, 39.9),
    (42.6, 45.1),
)
"""Days of the recording that the leaderboard's traces of several zones are cut from."""
MARGIN_S = 3 * 3600
MULTI_DAYS: dict[Split, tuple[int, int]] = {"train": (0, 25), "validation": (25, 38), "test": (38, 45)}
"""Splits of `adrs_multi`; of the first two, `LEADERBOARD_DAYS` with a margin of three hours are left out."""


@dataclass(frozen=True)
class Rules:
    """One problem of the leaderboard."""

    tick_s: int  # g, seconds
    deadlines_s: tuple[int, ...]  # deadlines, seconds
    restarts_s: tuple[int, ...]  # restart overheads, seconds
    one_zone: bool  # whether an episode has one zone, at a constant price


RULES: dict[RulesName, Rules] = {
    "adrs_single": Rules(600, (52 * 3600, 70 * 3600), (72, 180, 360), True),
    "adrs_multi": Rules(195, (52 * 3600,), (720,), False),
}


def stretches_s(rules: RulesName, split: Split, record_end_s: int) -> list[tuple[int, int]]:
    """Half-open stretches of the recording that the episodes of a split may see, seconds.

    `adrs_single` has the usual days. `adrs_multi` trains on days 0 to 25 and is validated on days 25 to 38,
    both without `LEADERBOARD_DAYS` and `MARGIN_S` on both sides; it is tested on days 38 to 45 with them:
    nothing is chosen there. No stretch of one split meets one of another.
    """
    first, last = (SPLIT_DAYS if RULES[rules].one_zone else MULTI_DAYS)[split]
    start_s, end_s = first * DAY_S, min(last * DAY_S, record_end_s)
    found: list[tuple[int, int]] = []
    if not RULES[rules].one_zone and split != "test":
        for left, right in LEADERBOARD_DAYS:
            begins_s, ends_s = round(left * DAY_S) - MARGIN_S, round(right * DAY_S) + MARGIN_S
            if start_s < begins_s < end_s:
                found.append((start_s, begins_s))
            if ends_s > start_s:
                start_s = min(end_s, max(start_s, ends_s)) if begins_s < end_s else start_s
    return [*found, (start_s, end_s)] if start_s < end_s else found


Availability = Literal["recorded", "poisson"]
INSTANCE = "p3.2xlarge"
ON_DEMAND_USD_HOUR = 3.06
SPOT_ANCHOR_USD_HOUR = 0.9731
"""Price of the leaderboard's lower anchor, and of spot in its single-zone problem."""


@dataclass
class SpotConfig:
    """What `spotweave/Spot-v0` simulates."""

    # "adrs_single" (one zone, ticks of 600 s) or "adrs_multi" (several zones, ticks of 195 s)
    rules: RulesName = "adrs_multi"
    # names of recorded zones. `adrs_single` draws one of them for each episode, `adrs_multi` has all of them
    # at the same time, in this order. Empty: all nine.
    zones: list[str] = field(default_factory=list)
    work_h: float = 48.0  # hours of work
    # hours until the deadline; None: one of the leaderboard's, in training every other episode a drawn one
    deadline_h: float | None = None
    restart_s: int | None = None  # seconds of overhead of every start; None: likewise
    # "recorded", or "poisson": memoryless spells of spot and none, independent by zone, at the recorded
    # prices
    availability: Availability = "recorded"
    up_h: float = 3.3  # mean hours of a spell of spot, with "poisson"; that of all recorded zones unless told
    down_h: float = 1.9  # mean hours without, likewise
    # mean seconds from a start until it runs, on top of the overhead; one takes 0.5 to 1.5 times that
    launch_s: int = 0
    launch_failure: float = 0.0  # probability that a start on spot fails although there is some
    # seconds before its end that a zone's spot is known to end and takes no more starts; only whole ticks of
    # it tell anybody anything
    notice_s: int = 0
    notice_missed: float = 0.0  # probability that an end comes without its notice

    def validate(self) -> None:
        """Raises WorldError for a configuration that makes no sense."""
        if not (math.isfinite(self.work_h) and self.work_h > 0):
            raise WorldError(f"env.work_h is {self.work_h}: expected hours > 0")
        if self.deadline_h is not None and not self.work_h < self.deadline_h < math.inf:
            raise WorldError(f"env.deadline_h is {self.deadline_h}: expected more than env.work_h")
        if self.restart_s is not None and self.restart_s < 0:
            raise WorldError(f"env.restart_s is {self.restart_s}: expected seconds >= 0")
        if self.deadline_h is None and self.work_h > 48:
            raise WorldError(f"env.work_h is {self.work_h}: expected at most 48, or give env.deadline_h")
        for name in ("up_h", "down_h"):
            hours = getattr(self, name)
            require(0 < hours < math.inf, f"env.{name} is {hours}", "hours > 0")
        at_least(self, "env", 0, "launch_s", "notice_s")
        shares(self, "env", "launch_failure", "notice_missed")


def _at(series: StepSeries, times_s: Ints) -> Floats:
    return series.values[np.maximum(np.searchsorted(series.times_s, times_s, side="right") - 1, 0)]


@dataclass
class RecordedJobs:
    """Jobs on the recorded zones. A `JobSource`.

    Args:
        config: what is simulated.
        bundle: the recording.

    Raises:
        WorldError: for a zone that was not recorded.
    """

    config: SpotConfig
    bundle: TraceBundle

    def __post_init__(self) -> None:
        self.config.validate()
        known = self.bundle.spot_zones("aws", INSTANCE)
        wrong = [zone for zone in self.config.zones if zone not in known]
        if wrong or len(set(self.config.zones)) < len(self.config.zones):
            given = wrong[0] if wrong else self.config.zones
            raise WorldError(f"env.zones has {given!r}: expected different zones among {', '.join(known)}")
        self.recorded = tuple(self.config.zones) or known
        self.rules = RULES[self.config.rules]

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of an episode; a drawn one is called "spot"."""
        return ("spot",) if self.rules.one_zone else self.recorded

    @property
    def most_ticks(self) -> int:
        """Ticks of the latest deadline."""
        hours = self.config.deadline_h
        most_s = 72 * 3600 if hours is None else hours * 3600
        return int(most_s // self.rules.tick_s) + 1

    @cached_property
    def _traces(self) -> dict[str, OfferTrace]:
        zones = self.recorded
        return {zone: self.bundle.offer_trace("aws", zone[:-1], zone, INSTANCE, "spot") for zone in zones}

    def starts_s(self, split: Split, horizon_s: int) -> list[tuple[int, int]]:
        """(first, last) starts of each stretch that holds a whole episode. Raises WorldError if none does."""
        parts = stretches_s(self.config.rules, split, self.bundle.record_end_s)
        fitting = [(start, end - horizon_s) for start, end in parts if end - start >= horizon_s]
        if not fitting:
            longest = max(end - start for start, end in parts) / 3600
            raise WorldError(
                f"no stretch of the {split} days holds {horizon_s / 3600:g} hours: "
                f"expected env.deadline_h <= {longest:.0f}"
            )
        return fitting

    def job_at(
        self,
        start_s: int,
        zones: tuple[str, ...],
        deadline_s: int,
        restart_s: int,
        streams: Streams | None = None,
    ) -> SpotJob:
        """The job that begins at a moment of the recording.

        Args:
            start_s: seconds of the recording.
            zones: names.
            deadline_s: seconds from then.
            restart_s: overhead of a start.
            streams: where all else that is random comes from; None: as recorded, and no `Habits`.
        """
        tick_s = self.rules.tick_s
        times_s = start_s + np.arange(deadline_s // tick_s, dtype=np.int64) * tick_s
        traces = [self._traces[zone] for zone in zones]
        has_spot = np.stack([_at(trace.availability, times_s) for trace in traces], axis=1) > 0
        price = np.stack([_at(trace.price_usd_hour, times_s) for trace in traces], axis=1)
        if self.rules.one_zone:
            price = np.full_like(price, SPOT_ANCHOR_USD_HOUR)
        work_s = round(self.config.work_h * 3600)
        habits = None
        if streams is not None:
            if self.config.availability == "poisson":
                has_spot = self._poisson(zones, times_s - start_s, streams)
            habits = self._habits(has_spot, streams)
        return SpotJob(has_spot, price, ON_DEMAND_USD_HOUR, work_s, tick_s, restart_s, start_s, habits)

    def _poisson(self, zones: tuple[str, ...], times_s: Ints, streams: Streams) -> Bools:
        """(N, Z) drawn availability."""
        law = poisson_parameters(self.config.up_h * 3600, self.config.down_h * 3600)
        horizon_s = len(times_s) * self.rules.tick_s
        rng = streams.generator("availability")
        drawn = generate_availability(rng, zones, horizon_s, law, self.rules.tick_s)
        return np.stack([_at(series, times_s) for series in drawn], axis=1) > 0

    def _habits(self, has_spot: Bools, streams: Streams) -> Habits:
        """Launches and notices, drawn for every tick and zone."""
        config, (n, n_zones) = self.config, has_spot.shape
        launches = streams.generator("launches")
        spread = launches.uniform(0.5, 1.5, (n, n_zones + 1))
        fails = launches.random((n, n_zones)) < config.launch_failure
        missed = streams.generator("revocations").random((n, n_zones)) < config.notice_missed
        ends = np.zeros_like(has_spot)
        ends[:-1] = has_spot[:-1] & ~has_spot[1:]
        announced = np.zeros_like(has_spot)
        told = ends & ~missed
        for back in range(min(n, config.notice_s // self.rules.tick_s)):
            # The end is known in its last tick, and in those before as far as the spell and the notice go.
            announced[: n - back] |= told[back:]
            told[back + 1 :] &= has_spot[: n - back - 1]
        return Habits(np.rint(config.launch_s * spread).astype(np.int64), fails, announced)

    def job(self, key: EpisodeKey) -> SpotJob:
        """The job of an episode."""
        streams = Streams(episode_sequence(key.seed, key.split, key.index))
        rng = streams.generator("window")
        deadline_s = int(rng.choice(self.rules.deadlines_s))
        restart_s = int(rng.choice(self.rules.restarts_s))
        zone = self.recorded[int(rng.integers(len(self.recorded)))]
        if key.split == "train" and rng.random() < 0.5:
            deadline_s = round(rng.uniform(50, 72) * 3600)
            restart_s = round(math.exp(rng.uniform(math.log(60), math.log(900))))
        # The leaderboard's deadlines are for 48 hours of work: for less they shrink with it.
        deadline_s = round(deadline_s * self.config.work_h / 48)
        if self.config.deadline_h is not None:
            deadline_s = round(self.config.deadline_h * 3600)
        if self.config.restart_s is not None:
            restart_s = self.config.restart_s
        starts = self.starts_s(key.split, deadline_s)
        lengths = np.array([last - first + 1 for first, last in starts])
        part = int(rng.choice(len(starts), p=lengths / lengths.sum()))
        start_s = int(rng.integers(starts[part][0], starts[part][1] + 1))
        zones = (zone,) if self.rules.one_zone else self.recorded
        return self.job_at(start_s, zones, deadline_s, restart_s, streams)


def build_spot(config: SpotConfig, n_lanes: int = 1, record: bool = False) -> SpotWorld:
    """A spot world of `n_lanes` copies; each keeps a timeline.

    Raises:
        WorldError: for a configuration that makes no sense, in one line.
    """
    source = RecordedJobs(config, load_bundle())
    for split in SPLITS:
        source.job(EpisodeKey(0, split, 0))  # what cannot be played is said at once
    return SpotWorld(cast(JobSource, source), n_lanes, SPOT_ANCHOR_USD_HOUR)
