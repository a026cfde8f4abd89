"""N copies of a spot job in arrays, and the compiled functions that move and show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.snapshot import (
    FULLY_SENSITIVE,
    N_CLUSTER_FIELDS,
    REFERENCE_HETERO,
    RENTED,
    Category,
    FloatArray,
    MaskArray,
    derive_into,
)
from spotweave.envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT, decide, settle
from spotweave.envs.simulation.world import EpisodeKey, WorldError


@dataclass(frozen=True)
class Habits:
    """How a provider's launches and notices went in one episode, whatever the policy does."""

    launch_s: Ints  # (N, Z + 1) seconds from a start in a tick until it runs, on demand last
    fails: Bools  # (N, Z) whether a start on spot fails although there is some
    announced: Bools  # (N, Z) whether the zone's spot, still there, is known to end

    @classmethod
    def none(cls, n_ticks: int, n_zones: int) -> Habits:
        """Habits of the leaderboards: nothing takes time, fails or is announced."""
        no = np.zeros((n_ticks, n_zones), np.bool_)
        return cls(np.zeros((n_ticks, n_zones + 1), np.int64), no, no)


@dataclass(frozen=True)
class SpotJob:
    """One episode: N ticks until the deadline, Z zones.

    Raises:
        WorldError: if the arrays do not fit each other, or not even on demand ends in time.
    """

    has_spot: Bools  # (N, Z) whether a zone has spot for the whole of a tick
    spot_usd_hour: Floats  # (N, Z) price of each tick
    on_demand_usd_hour: float  # price of on demand
    work_s: int  # work to do, seconds of running
    tick_s: int  # length of a tick, seconds
    restart_s: int  # overhead of every start, seconds, besides the launch
    start_s: int = 0  # when it begins on the clock of the recording, seconds
    habits: Habits | None = None  # launches and notices; None: `Habits.none`

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


DAY_S = 86_400


class Lanes(NamedTuple):
    """N lanes of Z zones and at most T ticks; cluster Z is on demand.

    `offers` (N, T + 1, Z + 1, N_CLUSTER_FIELDS) are the rows of `clusters` at every tick, nothing in use.
    `has_spot` (N, T + 1, Z) is what they are, `offers` what is shown: spot whose end was announced is not.
    `fails` (N, T, Z) tells the starts that fail, `early_s` (N, T, Z + 1) by how much a start is quicker than
    the slowest one. `history` (N, T) is the cluster that ran in a tick, -1 for none. All others are (N,).
    """

    offers: FloatArray
    has_spot: Bools
    fails: Bools
    early_s: Ints
    history: NDArray[np.int16]
    n_ticks: Ints
    work_s: Ints
    tick_s: Ints
    restart_s: Ints
    tick: Ints
    ran: Ints
    zone: Ints
    interrupted: Bools
    rem_s: Ints
    left_s: Ints
    cost_usd: Floats
    interruptions: Ints
    starts: Ints


def empty_lanes(n_lanes: int, n_zones: int, n_ticks: int) -> Lanes:
    """Lanes without an episode."""

    def counts() -> Ints:
        return np.zeros(n_lanes, np.int64)

    return Lanes(
        offers=np.zeros((n_lanes, n_ticks + 1, n_zones + 1, N_CLUSTER_FIELDS), np.float32),
        has_spot=np.zeros((n_lanes, n_ticks + 1, n_zones), np.bool_),
        fails=np.zeros((n_lanes, n_ticks, n_zones), np.bool_),
        early_s=np.zeros((n_lanes, n_ticks, n_zones + 1), np.int64),
        history=np.full((n_lanes, n_ticks), -1, np.int16),
        n_ticks=counts(),
        work_s=counts(),
        tick_s=counts(),
        restart_s=counts(),
        tick=counts(),
        ran=counts(),
        zone=counts(),
        interrupted=np.zeros(n_lanes, np.bool_),
        rem_s=counts(),
        left_s=counts(),
        cost_usd=np.zeros(n_lanes),
        interruptions=counts(),
        starts=counts(),
    )


def load(lanes: Lanes, lane: int, job: SpotJob, regions: tuple[int, ...]) -> None:
    """Start a job in a lane: parked in zone 0, nothing runs."""
    n, n_zones = job.has_spot.shape
    habits = job.habits or Habits.none(n, n_zones)
    lanes.offers[lane, : n + 1] = offers_of(job, job.has_spot & ~habits.announced, regions)
    lanes.has_spot[lane, :n] = job.has_spot
    lanes.has_spot[lane, n] = job.has_spot[-1]
    lanes.fails[lane, :n] = habits.fails
    lanes.early_s[lane, :n] = habits.launch_s.max() - habits.launch_s
    lanes.history[lane] = -1
    lanes.n_ticks[lane], lanes.work_s[lane] = n, job.work_s
    lanes.tick_s[lane], lanes.restart_s[lane] = job.tick_s, job.most_restart_s
    for started in (lanes.tick, lanes.zone, lanes.rem_s, lanes.interruptions, lanes.starts):
        started[lane] = 0
    lanes.ran[lane], lanes.interrupted[lane] = NONE, False
    lanes.left_s[lane], lanes.cost_usd[lane] = job.work_s, 0.0


def offers_of(job: SpotJob, up: Bools, regions: tuple[int, ...]) -> FloatArray:
    """(N + 1, Z + 1, N_CLUSTER_FIELDS): every zone's spot, then on demand; the last tick is shown twice.

    What a column says of the past is what was seen since the job began: that is all that is known of a zone.
    `up` (N, Z) is the availability that is shown.
    """
    n, n_zones = up.shape
    rows = np.zeros((n + 1, n_zones + 1, N_CLUSTER_FIELDS), np.float32)
    ticks = np.arange(n)[:, None]
    changed = np.ones_like(up)
    changed[1:] = up[1:] != up[:-1]
    since = np.maximum.accumulate(np.where(changed, ticks, 0), axis=0)
    window = max(1, DAY_S // job.tick_s)
    total = np.concatenate([np.zeros((1, n_zones)), np.cumsum(up, axis=0)])
    first = np.maximum(0, ticks[:, 0] + 1 - window)
    ended = changed & ~up & (ticks > 0)
    spot = rows[:n, :n_zones]
    spot[..., col.UP_RATIO] = (total[1:] - total[first]) / (ticks + 1 - first[:, None])
    spot[..., col.SPELL_S] = (ticks - since) * job.tick_s
    # Every up-spell that was seen to its end counts, those that began before the job did with what was seen.
    upto = np.where(ended, total[:-1], 0.0)
    spot[..., col.MEAN_UP_S] = (
        np.maximum.accumulate(upto, axis=0) * job.tick_s / np.maximum(1, np.cumsum(ended, axis=0))
    )
    spot[..., col.PRICE_USD_HOUR] = job.spot_usd_hour
    spot[..., col.AVAILABLE] = spot[..., col.CAPACITY_NOW] = up
    rows[:, :n_zones, col.IS_SPOT] = 1.0
    rows[:, :n_zones, col.REGION] = regions
    own = rows[:, n_zones]
    own[:, col.PRICE_USD_HOUR] = job.on_demand_usd_hour
    own[:, [col.AVAILABLE, col.CAPACITY_NOW, col.UP_RATIO]] = 1.0
    rows[..., col.SEQUENCE] = np.arange(1, n_zones + 2)
    rows[..., col.CAPACITY_MAX] = 1.0
    rows[..., col.HETERO_FACTOR] = REFERENCE_HETERO
    rows[..., col.ON_DEMAND_USD_HOUR] = job.on_demand_usd_hour
    rows[..., col.PROVIDER] = RENTED
    rows[n] = rows[n - 1]
    own[:, col.SPELL_S] = np.arange(n + 1) * job.tick_s
    return rows


@njit(cache=True, error_model="numpy")
def run_tick(lanes: Lanes, lane: int, cluster: int) -> bool:
    """Let a tick pass in a lane: whether the episode has ended, by its work or by its deadline.

    Args:
        lanes: all lanes.
        lane: which.
        cluster: the offer chosen; the number of clusters means none: what runs goes on.
    """
    n_zones = lanes.offers.shape[2] - 1
    t = lanes.tick[lane]
    ran, interrupted, before = lanes.ran[lane], lanes.interrupted[lane], lanes.zone[lane]
    proposal = NONE if interrupted else ran
    if cluster < n_zones:
        proposal = SPOT
        lanes.zone[lane] = cluster
    elif cluster == n_zones:
        proposal = ON_DEMAND
    zone = lanes.zone[lane]
    tick_s, restart_s = lanes.tick_s[lane], lanes.restart_s[lane]
    runs, rem_s = decide(
        proposal,
        ran,
        interrupted,
        lanes.has_spot[lane, t, zone],
        lanes.rem_s[lane],
        lanes.left_s[lane],
        lanes.n_ticks[lane] - t,
        tick_s,
        restart_s,
    )
    starts = runs != NONE and (interrupted or runs != ran)
    moves = runs == SPOT and not starts and zone != before
    if runs == SPOT and (starts or moves) and lanes.fails[lane, t, zone]:
        # A start that fails leaves the job as it was: where it ran, or without anything.
        zone = lanes.zone[lane] = before
        runs = NONE if interrupted else ran
        rem_s, starts = lanes.rem_s[lane], False
    if runs != NONE:
        place = zone if runs == SPOT else n_zones
        if starts:
            rem_s -= lanes.early_s[lane, t, place]
        lanes.history[lane, t] = place
        lanes.cost_usd[lane] += lanes.offers[lane, t, place, col.PRICE_USD_HOUR] * tick_s / 3600.0
        lanes.starts[lane] += 1 if starts else 0
    lanes.rem_s[lane], lanes.left_s[lane] = settle(runs, rem_s, lanes.left_s[lane], tick_s)
    lanes.ran[lane] = runs
    lanes.tick[lane] = t + 1
    ended = lanes.left_s[lane] == 0 or t + 1 >= lanes.n_ticks[lane]
    gone = not lanes.has_spot[lane, t + 1, zone]
    lanes.interrupted[lane] = not ended and runs == SPOT and gone
    lanes.interruptions[lane] += 1 if lanes.interrupted[lane] else 0
    return bool(ended)


@njit(cache=True, error_model="numpy")
def show(
    lanes: Lanes, lane: int, clusters: FloatArray, jobs: FloatArray, pairs: FloatArray, mask: MaskArray
) -> None:
    """Fill one observation with the decision of a lane's current tick."""
    n_clusters = lanes.offers.shape[2]
    t = lanes.tick[lane]
    ran = lanes.ran[lane]
    running = ran != NONE and not lanes.interrupted[lane]
    here = -1
    if running:
        here = lanes.zone[lane] if ran == SPOT else n_clusters - 1
    left_s, work_s, tick_s = lanes.left_s[lane], lanes.work_s[lane], lanes.tick_s[lane]
    clusters[:] = lanes.offers[lane, t]
    jobs[:] = 0.0
    pairs[:] = 0.0
    jobs[0, col.PRESENT] = 1.0
    jobs[0, col.CATEGORY] = Category.TIME_CRITICAL.value
    jobs[0, col.EXPECTED_HETERO] = REFERENCE_HETERO
    jobs[0, col.SENSITIVITY] = FULLY_SENSITIVE
    jobs[0, col.STANDARD_S] = work_s
    jobs[0, col.EXECUTIONS] = 1.0
    jobs[0, col.DURATION_S] = left_s
    jobs[0, col.AGE_S] = t * tick_s
    jobs[0, col.SLACK_S] = (lanes.n_ticks[lane] - t) * tick_s
    jobs[0, col.HAS_DEADLINE] = 1.0
    jobs[0, col.PROGRESS] = 1.0 - left_s / work_s
    jobs[0, col.RESTART_S] = lanes.restart_s[lane]
    jobs[0, col.INTERRUPTIONS] = lanes.interruptions[lane]
    jobs[0, col.RUNNING] = 1.0 if running else 0.0
    if not running:
        idle = 0
        while idle < t and lanes.history[lane, t - 1 - idle] < 0:
            idle += 1
        jobs[0, col.WAITED_S] = idle * tick_s
    for c in range(n_clusters):
        pairs[0, c, col.REQUEST] = pairs[0, c, col.PEAK_REQUEST] = 1.0
        pairs[0, c, col.DEADLINE_S] = jobs[0, col.SLACK_S]
        pairs[0, c, col.EXECUTION_S] = left_s
        moves = running and ran == SPOT and c < n_clusters - 1
        pairs[0, c, col.TRANSFER_S] = lanes.rem_s[lane] if moves else lanes.restart_s[lane]
    if here >= 0:
        pairs[0, here, col.HERE] = 1.0
        pairs[0, here, col.TRANSFER_S] = 0.0
        pairs[0, here, col.EXECUTION_S] = left_s + lanes.rem_s[lane]
        clusters[here, col.USED] = 1.0
    derive_into(clusters, jobs, pairs, True, mask)
