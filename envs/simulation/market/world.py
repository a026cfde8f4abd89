"""The market world as a `BatchWorld`: N lanes stepped by one call of compiled code."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spotweave.envs.simulation.guards import no_facts
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.clock import step_lanes
from spotweave.envs.simulation.market.config import MarketWorldConfig
from spotweave.envs.simulation.market.episodes import (
    EpisodeData,
    Episodes,
    changes_of,
    empty_episodes,
    grow,
    store,
)
from spotweave.envs.simulation.market.ledger import episode_metrics, higher_is_better, metrics_of
from spotweave.envs.simulation.market.source import MarketData, draw_episode, fingerprint, make_offers
from spotweave.envs.simulation.market.state import (
    CHARGES_PER_USD,
    N_MARKS,
    NEVER,
    Lanes,
    Offers,
    Rules,
    clear_lane,
    copy_lanes,
    empty_lanes,
)
from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.simulation.snapshot import Category, arrays_of, empty_observation
from spotweave.envs.simulation.world import (
    CompiledWorld,
    EpisodeKey,
    Segment,
    Timeline,
    WorldError,
    WorldSpec,
    used,
)

_BILLED = (at.SETTING_UP, at.WORKING, at.IDLE, at.MOVING)


def lane_timeline(lanes: Lanes, episodes: Episodes, offers: Offers, spec: WorldSpec, lane: int) -> Timeline:
    """What the log and the present state of a lane tell."""
    slot = int(lanes.episode_of_lane[lane])
    now = int(lanes.lane[lane, at.NOW_S])
    rows = lanes.log[lane, : lanes.lane[lane, at.LOG_N]]
    stays = []
    for row in rows[rows[:, at.LOG_KIND] == at.SEGMENT]:
        job, c, start, end, late = (int(value) for value in row[at.LOG_JOB :])
        stays.append((job, c, start, end, bool(late)))
    for job in np.flatnonzero(np.isin(lanes.job[lane, :, at.PHASE], _BILLED)).tolist():
        start = int(lanes.job[lane, job, at.BILLED_FROM_S])
        stays.append(
            (job, int(lanes.job[lane, job, at.OFFER]), start, now, bool(lanes.job[lane, job, at.MISSES] > 0))
        )
    segments = tuple(
        Segment(
            job=job,
            cluster=c,
            start=float(start),
            end=float(end),
            executors=int(episodes.job[slot, job, at.EXECUTORS]),
            category=int(episodes.job[slot, job, at.CATEGORY]),
            missed=late,
        )
        for job, c, start, end, late in sorted(stays, key=lambda stay: (stay[2], stay[0]))
    )
    n_offers = spec.n_clusters
    return Timeline(
        cluster_names=spec.cluster_names,
        time_unit="s",
        end=float(now),
        segments=segments,
        capacity=tuple(_capacity(episodes, offers, rows, slot, c, now) for c in range(n_offers)),
        used=used(segments, n_offers),
        price_usd_hour=tuple(_price(episodes, slot, c, now) for c in range(n_offers)),
        misses=_moments(rows, at.MISS),
        interruptions=_moments(rows, at.INTERRUPTION),
    )


def _moments(
    rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], kind: int
) -> tuple[tuple[float, int], ...]:
    chosen = rows[rows[:, at.LOG_KIND] == kind]
    return tuple((float(row[at.LOG_END_S]), int(row[at.LOG_OFFER])) for row in chosen)


def _capacity(episodes: Episodes, offers: Offers, log: Ints, slot: int, c: int, now: int) -> StepSeries:
    if offers.fixed[c, at.ELASTIC] > 0:
        changes = log[(log[:, at.LOG_KIND] == at.EXTENDED) & (log[:, at.LOG_OFFER] == c)]
        own = float(offers.fixed[c, at.QUOTA] - offers.fixed[c, at.ELASTIC])
        times_s = np.concatenate([[-1], changes[:, at.LOG_START_S]])
        added = np.concatenate([[0.0], changes[:, at.LOG_JOB].astype(np.float64)])
        return StepSeries(times_s, own + added).window(0, max(now, 1))
    rows = _rows(episodes.up[slot, c])
    capacity = rows[:, at.UP].astype(np.float64) * float(offers.fixed[c, at.QUOTA])
    return StepSeries(rows[:, at.SINCE].copy(), capacity).window(0, max(now, 1))


def _price(episodes: Episodes, slot: int, c: int, now: int) -> StepSeries:
    rows = _rows(episodes.price[slot, c])
    usd = rows[:, at.PRICE].astype(np.float64) / 1e6
    return StepSeries(rows[:, at.SINCE].copy(), usd).window(0, max(now, 1))


def _rows(rows: Ints) -> Ints:
    """The rows in use: the last of them ends never."""
    return rows[: int(np.argmax(rows[:, at.UNTIL] == NEVER)) + 1]


COMPONENTS = ("own_misses", "mutual_misses", "delay", "money", "owned_hours")
# Typical magnitudes of a decision's components under cheapest-spot placement.
SCALES = (1.0, 1.0, 2.0, 5.0, 5.0)
_LOG_ROWS = 65_536


class MarketWorld(CompiledWorld):
    """N independent lanes of one market world: offers over clouds, spot and on demand, and owned clusters.

    The reward of a decision is minus what the objective grew by until the next decision, so an episode's
    rewards sum to minus the objective, `cost_usd_eq`: USD paid, plus `miss_usd` per missed time-critical job,
    `batch_miss_usd` per late batch and `delay_usd_hour` per hour of delay.

    Attributes:
        config: the validated configuration.
        data: the recorded market.
        spec: fixed facts.
        n_lanes: N.
        observation: overwritten by `step` and `reset`.
        lanes: mutable state, for compiled code that steps lanes itself (`clock.step_lanes`).
        episodes: episode data by slot, likewise; replaced when it grows, so read it again after a `reset`.
        offers: fixed facts of the offers, likewise.
        rules: scalars, likewise.
    """

    def __init__(
        self, config: MarketWorldConfig, data: MarketData, n_lanes: int = 1, record: bool = False
    ) -> None:
        """Make lanes that play nothing yet; call `reset`.

        Args:
            config: what to simulate.
            data: the market it happens in.
            n_lanes: copies.
            record: remember who ran where, for `timeline`.

        Raises:
            WorldError: for a configuration or data that make no sense, or n_lanes < 1.
        """
        config.validate()
        data.validate()
        super().__init__(n_lanes)
        self.config, self.data, self.record = config, data, record
        market = config.market
        n_offers, most = len(data.offers), config.workload.most_tasks
        metrics = metrics_of(config.workload.federated)
        self.spec = WorldSpec(
            name="multicloud",
            window=market.window,
            n_clusters=n_offers,
            cluster_names=tuple(offer.name for offer in data.offers),
            components=COMPONENTS,
            weights=(
                market.miss_usd,
                market.miss_usd * market.mutual_weight,
                market.delay_usd_hour,
                1.0,
                market.owned_usd_hour,
            ),
            scales=SCALES,
            metrics=metrics,
            higher_is_better=higher_is_better(metrics),
            time_unit="s",
            objective_weights=(market.miss_usd, market.miss_usd, market.delay_usd_hour, 1.0, 0.0),
            federated=config.workload.federated,
        )
        self.rules = Rules(
            decision_interval_s=market.decision_interval_s,
            reconsider_interval_s=market.reconsider_interval_s,
            failure_s=market.failure_s,
            restart_s=market.restart_s,
            strict_fifo=int(market.strict_fifo),
            miss_usd=float(market.miss_usd),
            batch_miss_usd=float(market.batch_miss_usd),
            delay_usd_hour=float(market.delay_usd_hour),
            max_decisions=market.max_decisions,
            max_s=market.max_s,
            elastic_step=market.elastic_step,
            elastic_window_s=market.elastic_window_s,
            federated=int(config.workload.federated),
            epoch_spread=float(config.workload.applications.epoch_spread),
            guards=config.guards.rules(),
        )
        self.offers = make_offers(config, data)
        self.lanes = empty_lanes(n_lanes, market.window, n_offers, most, _LOG_ROWS if record else 0)
        self.episodes = empty_episodes(1, most, n_offers, 1)
        self.observation = empty_observation(market.window, n_offers, (n_lanes,))
        self._seen = arrays_of(self.observation)
        self._facts = no_facts(n_offers)

    def load(self, episode: EpisodeData, lane: int = 0) -> None:
        """Start a given episode in a lane and show its first decision.

        Raises:
            WorldError: for an empty workload, or more jobs than `workload.jobs`.
        """
        n, room = len(episode.jobs.arrival_s), self.lanes.job.shape[1]
        if not 1 <= n <= room:
            raise WorldError(f"an episode of {n} jobs in a world for 1 to {room}: set workload.jobs to {n}")
        slot = self._free_slot(lane, self.lanes.episode_of_lane)
        changes = changes_of(episode)
        if slot >= self.episodes.n_jobs.shape[0] or changes > self.episodes.up.shape[2]:
            self.episodes = grow(self.episodes, self.n_lanes, changes + changes // 4)
        store(self.episodes, slot, episode)
        clear_lane(self.lanes, lane, slot, n)
        self.go_on(lane)

    def go_on(self, lane: int) -> None:
        """Let time pass in a lane until a decision is due or the episode is over."""
        active = np.arange(self.n_lanes) == lane
        rewards, done = np.empty(self.n_lanes), np.empty(self.n_lanes, np.bool_)
        self._call(np.zeros(self.n_lanes, np.int64), active, rewards, done, False)

    def truncated(self, lane: int) -> bool:
        """Whether the episode in a lane was cut off by `max_decisions` or `max_s`."""
        return bool(self.lanes.lane[lane, at.STATUS] == at.TRUNCATED)

    def decided_jobs(self) -> Ints:
        """(N,) job that the latest `step` decided in each lane, -1 where none."""
        return self.lanes.lane[:, at.DECIDED].copy()

    def marks(self) -> Floats:
        """(N, 5) running totals of the decided job (see `ledger`), taken just before the latest action."""
        return self.lanes.mark.copy()

    def values(self, lane: int, jobs: Ints, marks: Floats) -> Floats:
        """(D, 5) minus what each decision's job gained since, in the order of `COMPONENTS`.

        For a task of an application misses, delay and money are those of the whole application.

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        slot = self.lanes.episode_of_lane[lane]
        batch = self.config.market.batch_miss_usd / self.config.market.miss_usd
        weight = np.where(self.episodes.job[slot, jobs, at.CATEGORY] == Category.STREAMING, batch, 1.0)
        final = np.empty((len(jobs), N_MARKS), np.float64)
        first = self.episodes.job[slot, jobs, at.SERVER]  # the job itself, unless it is a client
        end = first + 1 + self.episodes.job[slot, jobs, at.CLIENTS]
        paid = np.concatenate([[0], np.cumsum(self.lanes.job[lane, :, at.CHARGE])])
        final[:, 0] = self.lanes.job[lane, first, at.MISSES] * weight
        final[:, 1] = self.lanes.job_real[lane, jobs, at.MUTUAL]
        final[:, 2] = self.lanes.job_real[lane, first, at.DELAY]
        final[:, 3] = (paid[end] - paid[first]) / CHARGES_PER_USD
        used = np.concatenate([[0], np.cumsum(self.lanes.job[lane, :, at.OWNED_S])])
        final[:, 4] = (used[end] - used[first]) / 3600.0
        return marks - final

    def clock(self) -> Ints:
        """(N,) second whose decision is awaited, or in which the last job ended."""
        return self.lanes.lane[:, at.NOW_S].copy()

    def shown_jobs(self) -> Ints:
        """(N, J) job in each row of the window; meaningless where there is none."""
        return self.lanes.window.copy()

    def stays(self, lane: int) -> Floats:
        """(n, 3) seconds at which each job of a finished episode arrived, came in (the same) and ended.

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        slot = self.lanes.episode_of_lane[lane]
        n = self.episodes.n_jobs[slot]
        arrival = self.episodes.job[slot, :n, at.ARRIVAL_S]
        return np.stack([arrival, arrival, self.lanes.job[lane, :n, at.FINISH_S]], 1).astype(np.float64)

    def outcomes(self, lane: int, jobs: Ints, marks: Floats) -> Floats:
        """(D, 5) what each decision's job gained since, in the order of `COMPONENTS`: see `values`."""
        return -self.values(lane, jobs, marks)

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode in a lane, keyed by `spec.metrics` (see `metrics`).

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        return episode_metrics(self.lanes, self.episodes, self.offers, self.rules, lane)

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of everything random in an episode (workload, prices, availability, keys)."""
        return fingerprint(draw_episode(self.config, self.data, key))

    def copy_lanes(self, sources: Ints, targets: Ints) -> None:
        """Make lane targets[k] an exact copy of lane sources[k]: same past, same future.

        Copies share the episode's data in memory; their states are their own from then on.
        """
        copy_lanes(self.lanes, sources, targets)
        for array in self._seen:
            array[targets] = array[sources]

    def limit_arrivals(self, lanes: Ints, further: int) -> None:
        """Let only `further` more jobs arrive in these lanes; their episodes end when those have ended.

        Raises:
            ValueError: if `further` < 0.
        """
        if further < 0:
            raise ValueError(f"further arrivals must be >= 0, got {further}")
        limit = np.minimum(self.lanes.lane[lanes, at.LIMIT], self.lanes.lane[lanes, at.ARRIVED] + further)
        if self.config.workload.federated or self.config.workload.has_groups:  # these arrive as a whole
            last, slots = np.maximum(0, limit - 1), self.lanes.episode_of_lane[lanes]
            rows = self.episodes.job[slots, last]
            limit = np.maximum(limit, rows[:, at.SERVER] + 1 + rows[:, at.CLIENTS])
            limit = np.maximum(limit, rows[:, at.LAST_ROW] + 1)
        self.lanes.lane[lanes, at.LIMIT] = limit

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far. Raises WorldError unless the world was made with record=True."""
        if not self.record:
            raise WorldError("this world keeps no history: make it with record=True to draw it")
        return lane_timeline(self.lanes, self.episodes, self.offers, self.spec, lane)

    def _begin(self, key: EpisodeKey, lane: int) -> None:
        self.load(draw_episode(self.config, self.data, key), lane)

    def _step(self, actions: Ints, active: Bools, rewards: Floats, done: Bools) -> int:
        return self._call(actions, active, rewards, done, True)

    def _call(self, actions: Ints, active: Bools, rewards: Floats, done: Bools, deciding: bool) -> int:
        world = (self.lanes, self.episodes, self.offers, self.rules)
        return int(step_lanes(*world, self._facts, actions, active, self._seen, rewards, done, deciding))

    def _ended(self, lane: int) -> bool:
        return bool(self.lanes.lane[lane, at.STATUS] != at.RUNNING)

    def _why_masked(self, cluster: int) -> str:
        return f"{self.spec.cluster_names[cluster]} is unavailable, full, too small, or where the job is"
