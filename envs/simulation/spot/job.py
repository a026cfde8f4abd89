"""A divisible job with a deadline, and the spot zones that it may run in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from envs.simulation.series import Bools, Floats, Ints
from envs.simulation.world import EpisodeKey, WorldError


@dataclass(frozen=True)
class Habits:
    """How a provider's launches and notices went in one episode, whatever the policy does.

    Attributes:
        launch_s: (N, Z + 1) seconds from a start in a tick until it runs, on demand last.
        fails: (N, Z) whether a start on spot fails although there is some.
        announced: (N, Z) whether the zone's spot, still there, is known to end.
    """

    launch_s: Ints
    fails: Bools
    announced: Bools

    @classmethod
    def none(cls, n_ticks: int, n_zones: int) -> Habits:
        """Habits of the leaderboards: nothing takes time, fails or is announced."""
        no = np.zeros((n_ticks, n_zones), np.bool_)
        return cls(np.zeros((n_ticks, n_zones + 1), np.int64), no, no)


@dataclass(frozen=True)
class SpotJob:
    """One episode: N ticks until the deadline, Z zones.

    Attributes:
        has_spot: (N, Z) whether a zone has spot for the whole of a tick.
        spot_usd_hour: (N, Z) price of each tick.
        on_demand_usd_hour: price of on demand.
        work_s: work to do, seconds of running.
        tick_s: length of a tick, seconds.
        restart_s: overhead of every start, seconds, besides the launch.
        start_s: when it begins on the clock of the recording, seconds.
        habits: launches and notices; None: `Habits.none`.

    Raises:
        WorldError: if the arrays do not fit each other, or not even on demand ends in time.
    """

    has_spot: Bools
    spot_usd_hour: Floats
    on_demand_usd_hour: float
    work_s: int
    tick_s: int
    restart_s: int
    start_s: int = 0
    habits: Habits | None = None

    def __post_init__(self) -> None:
        if self.has_spot.ndim != 2 or self.has_spot.shape != self.spot_usd_hour.shape:
            raise WorldError(
                f"availability {self.has_spot.shape} and prices {self.spot_usd_hour.shape} of spot zones: "
                "expected two arrays of one shape (ticks, zones)"
            )
        if min(self.work_s, self.tick_s) < 1 or self.restart_s < 0:
            raise WorldError(
                f"work {self.work_s} s, tick {self.tick_s} s, restart {self.restart_s} s: "
                "expected positive work and ticks, and a restart of 0 or more"
            )
        if self.work_s + self.most_restart_s > self.deadline_s:
            raise WorldError(
                f"{self.work_s} s of work after {self.most_restart_s} s of restart cannot end within "
                f"{self.deadline_s} s: give a later deadline"
            )

    @property
    def n_ticks(self) -> int:
        """N."""
        return len(self.has_spot)

    @property
    def most_restart_s(self) -> int:
        """d: overhead of a start with the slowest launch, what the guarantee and policies reckon with."""
        return self.restart_s + (0 if self.habits is None else int(self.habits.launch_s.max()))

    @property
    def deadline_s(self) -> int:
        """Seconds until the deadline."""
        return self.n_ticks * self.tick_s

    @property
    def on_demand_usd(self) -> float:
        """What the work alone costs on demand: the leaderboard's upper anchor."""
        return self.on_demand_usd_hour * self.work_s / 3600


class JobSource(Protocol):
    """Source of episodes."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Z names; what comes before a name's last letter names the region."""

    @property
    def most_ticks(self) -> int:
        """The most ticks that a job of this source has."""

    def job(self, key: EpisodeKey) -> SpotJob:
        """The job of an episode."""
