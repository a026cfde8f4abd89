"""The slice world as a `BatchWorld`: N lanes stepped by one call of compiled code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.simulation.slices import columns as at
from spotweave.envs.simulation.slices.config import CHAPTER_4, CHAPTER_5, OBJECTIVES, SliceWorldConfig
from spotweave.envs.simulation.slices.kernel import COMPONENTS, LONG_AGO, begin_lane, next_extension
from spotweave.envs.simulation.slices.observe import step_batch
from spotweave.envs.simulation.slices.state import Lanes, Rules, Tables, make_lanes, make_rules, make_tables
from spotweave.envs.simulation.slices.workload import Workload, draw_workload, longest_delay
from spotweave.envs.simulation.snapshot import arrays_of, empty_observation
from spotweave.envs.simulation.world import (
    CompiledWorld,
    EpisodeKey,
    Segment,
    Timeline,
    WorldError,
    WorldSpec,
)

_COMMON = ("job_ratio_p95", "job_ratio_p99", "misses_unqueued", "misses_queued", "makespan")
METRICS = {
    CHAPTER_5: ("s", "tmdl", "ajer", "s_log", "ajdr", "eval_app", *_COMMON),
    CHAPTER_4: ("weighted_cost", "tmdl", "ajdr", "eval_app", *_COMMON),
}
"""Names in display order by `ValueConfig.kind`; the first is the objective."""
HIGHER_IS_BETTER = frozenset({"s", "s_log", "eval_app"})

LEAST_COST = 0.02
"""`eval_app` takes a weighted cost of 0 to this as this: one missed deadline. A perfect episode scores 50."""


def episode_metrics(lanes: Lanes, tables: Tables, lane: int) -> dict[str, float]:
    """Metrics of the episode that ended in a lane, those of both chapters.

    - s: S = -tmdl + 50 (100 - ajer), the objective of section 5.4.
    - tmdl: missed deadlines.
    - ajer: 100 * mean over jobs of the mean AR / SR.
    - s_log: sign(S) log10(max(|S|, 1)).
    - ajdr: eq. 4.8 with the standard execution time as OR.
    - weighted_cost: 0.02 tmdl + ajdr, the objective of chapter 4.
    - eval_app: eq. 4.9, 1 / weighted_cost, at most 50 (see `LEAST_COST`). Meant for chapter 4, where
      ajdr >= 0: on faster executors than expected it can be negative.
    - job_ratio_p95, job_ratio_p99: percentiles over jobs of the mean AR / SR.
    - misses_unqueued: misses whose execution started when requested (M of section 5.3).
    - misses_queued: misses whose execution had waited (W).
    - makespan: slice in which the last job ended.
    """
    n_jobs = int(lanes.lane[lane, at.LIMIT])
    job = lanes.job[lane, :n_jobs].astype(np.int64)
    data = tables.job[lanes.slot[lane], :n_jobs].astype(np.int64)
    ratios = job[:, at.ACTUAL] / (data[:, at.STANDARD] * data[:, at.EXECUTIONS])
    unqueued = int(job[:, at.MISSED_UNQUEUED].sum())
    queued = int(job[:, at.MISSED_QUEUED].sum())
    mean_ratio = math.fsum(ratios.tolist()) / len(ratios)
    return summarise(ratios.tolist(), mean_ratio, unqueued, queued, int(lanes.lane[lane, at.TIME]))


def summarise(
    ratios: list[float], mean_ratio: float, unqueued: int, queued: int, makespan: int
) -> dict[str, float]:
    """The metrics by name, from each job's mean AR / SR, the misses of both kinds and the makespan."""
    tmdl = unqueued + queued
    ajer = 100.0 * mean_ratio
    ajdr = ajer - 100.0
    score = -tmdl + 50.0 * (100.0 - ajer)
    cost = 0.02 * tmdl + ajdr
    p95, p99 = np.percentile(ratios, [95, 99])
    return {
        "s": score,
        "tmdl": float(tmdl),
        "ajer": ajer,
        "s_log": math.copysign(math.log10(max(abs(score), 1.0)), score),
        "ajdr": ajdr,
        "weighted_cost": cost,
        "eval_app": 1.0 / (max(cost, LEAST_COST) if cost >= 0.0 else cost),
        "job_ratio_p95": float(p95),
        "job_ratio_p99": float(p99),
        "misses_unqueued": float(unqueued),
        "misses_queued": float(queued),
        "makespan": float(makespan),
    }


# The history of a recorded lane, rebuilt from the start of each execution.


def lane_timeline(lanes: Lanes, tables: Tables, rules: Rules, spec: WorldSpec, lane: int) -> Timeline:
    """What happened in a lane before its present slice (made with `record`)."""
    end = int(lanes.lane[lane, at.TIME])
    segments = sorted(_segments(lanes, tables, lane, end), key=lambda segment: (segment.start, segment.job))
    capacity, used = [], []
    for cluster in range(spec.n_clusters):
        held, held_before = _held(segments, cluster, end)
        used.append(_series(held))
        capacity.append(_series(_capacity(rules, cluster, held, held_before)))
    free_of_charge = StepSeries(np.zeros(1, np.int64), np.zeros(1, np.float64))
    return Timeline(
        cluster_names=spec.cluster_names,
        time_unit=spec.time_unit,
        end=float(end),
        segments=tuple(segments),
        capacity=tuple(capacity),
        used=tuple(used),
        price_usd_hour=(free_of_charge,) * spec.n_clusters,
        misses=tuple(sorted((segment.end, segment.cluster) for segment in segments if segment.missed)),
    )


def _segments(lanes: Lanes, tables: Tables, lane: int, end: int) -> Iterable[Segment]:
    slot = int(lanes.slot[lane])
    for j in range(tables.job.shape[1]):
        job, data = lanes.job[lane, j], tables.job[slot, j]
        if job[at.PHASE] < at.BETWEEN:
            continue
        cluster = int(job[at.CLUSTER])
        pair = tables.pair[slot, j, cluster]
        done, running = int(job[at.DONE]), job[at.PHASE] == at.RUNNING
        previous_end = int(job[at.DEPLOYED_AT])
        for k in range(done + int(running)):
            start = int(lanes.starts[lane, j, k])
            requested = max(int(job[at.DEPLOYED_AT] + k * data[at.PERIOD]), previous_end)
            previous_end = start + int(pair[at.EXECUTION])
            deadline = int(pair[at.DEADLINE])
            column = at.PEAK_REQUEST if tables.uses_peak[slot, j, k] else at.REQUEST
            yield Segment(
                job=j,
                cluster=cluster,
                start=float(start),
                end=float(min(previous_end, end)),
                executors=int(pair[column]),
                category=int(data[at.CATEGORY]),
                missed=k < done and 0 < deadline < previous_end - requested,
            )


def _held(segments: list[Segment], cluster: int, end: int) -> tuple[Ints, Ints]:
    """Executors held on a cluster in each slice, and those of them held from before: two (max(end, 1),)."""
    started = np.zeros(end + 1, np.int64)
    ended = np.zeros(end + 1, np.int64)
    for segment in segments:
        if segment.cluster == cluster:
            started[int(segment.start)] += segment.executors
            ended[int(segment.end)] += segment.executors
    slices = max(end, 1)
    held = np.cumsum(started - ended)[:slices]
    return held, held - started[:slices]


def _capacity(rules: Rules, cluster: int, held: Ints, held_before: Ints) -> Ints:
    """Capacity in effect in each slice: the elasticity controller run over what was held."""
    normal = int(rules.normal[cluster])
    capacity = np.full(len(held), normal, np.int64)
    if not rules.extension_max[cluster]:
        return capacity
    extension, high_at = 0, LONG_AGO
    for time in range(len(held)):
        extension = next_extension(
            extension,
            int(rules.extension_max[cluster]),
            rules.elastic_step,
            int(held_before[time]),
            normal,
            time - high_at,
            rules.elastic_window,
        )
        capacity[time] = normal + extension
        if held[time] / capacity[time] >= rules.elastic_threshold:
            high_at = time
    return capacity


def _series(values: Ints) -> StepSeries:
    times = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return StepSeries(times.astype(np.int64), values[times].astype(np.float64))


_NAMES = {CHAPTER_5: "multicluster", CHAPTER_4: "chapter4"}
_WEIGHTS = {CHAPTER_5: (1.0, 0.05, 5.0), CHAPTER_4: (1.0, 1.0, 1.0)}
# Typical magnitudes under MAF; chapter 4 counts misses of all clusters, times gamma.
_SCALES = {CHAPTER_5: (5.0, 20.0, 0.25), CHAPTER_4: (2.0, 2.0, 0.1)}


class SliceWorld(CompiledWorld):
    """N independent lanes of one slice world (Liu 2022, chapters 4 and 5).

    The reward of a decision is what the objective gained until the next decision. Chapter 5, where it is
    S = -TMDL + 50 (100 - AJER): -1 for each missed deadline, 5000 / n_jobs * (1 - mean AR / SR) for each job
    that ended. Chapter 4, where it is the cost 0.02 TMDL + AJDR: -0.02 and 100 / n_jobs * (1 - mean AR / SR).
    An episode's rewards sum to S, or to minus the cost. After the last decision the lane runs on until every
    job has ended.

    Attributes:
        config: the validated configuration.
        spec: fixed facts.
        n_lanes: N.
        observation: overwritten by `step` and `reset`.
        tables: workloads by slot, for compiled code that steps lanes itself (`kernel.step_lane`).
        lanes: mutable state, likewise.
        rules: constants, likewise.
    """

    def __init__(
        self, config: SliceWorldConfig | None = None, n_lanes: int = 1, record: bool = False
    ) -> None:
        """Make lanes that play nothing yet; call `reset`.

        Args:
            config: what to simulate; None: chapter 5.
            n_lanes: copies.
            record: remember when executions started, for `timeline`.

        Raises:
            WorldError: for a configuration that makes no sense, or n_lanes < 1.
        """
        self.config = config if config is not None else SliceWorldConfig()
        self.config.validate()
        super().__init__(n_lanes)
        n_clusters = len(self.config.capacities)
        kind = self.config.value.kind
        objective = OBJECTIVES[kind]
        self.spec = WorldSpec(
            name=_NAMES[kind],
            window=self.config.window,
            n_clusters=n_clusters,
            cluster_names=tuple(f"cluster-{c + 1}" for c in range(n_clusters)),
            components=COMPONENTS,
            weights=_WEIGHTS[kind],
            scales=_SCALES[kind],
            metrics=METRICS[kind],
            higher_is_better=tuple(name in HIGHER_IS_BETTER for name in METRICS[kind]),
            time_unit="slice",
            objective_weights=(objective.miss, objective.miss, objective.delay / self.config.n_jobs),
            forecast=self.config.forecast,
        )
        self.rules: Rules = make_rules(self.config, record)
        self.tables: Tables = make_tables(self.config, n_lanes)
        self.lanes: Lanes = make_lanes(self.config, n_lanes, longest_delay(self.config) + 1, record)
        self.observation = empty_observation(self.config.window, n_clusters, (n_lanes,))
        self._seen = arrays_of(self.observation)
        self._decided = np.full(n_lanes, -1, np.int64)

    def load(self, workload: Workload, lane: int = 0) -> None:
        """Start an episode with a given workload in a lane.

        Raises:
            WorldError: if the workload does not fit this world (see `Workload.validate`).
        """
        workload.validate(self.config)
        slot = self._free_slot(lane, self.lanes.slot)
        self._fill(slot, workload)
        self.lanes.slot[lane] = slot
        begin_lane(self.lanes, lane)
        n, active = self.n_lanes, np.arange(self.n_lanes) == lane
        # What the step tells of all lanes is of no use here.
        rewards, done, decided = np.empty(n), np.empty(n, np.bool_), np.empty(n, np.int64)
        self._call(np.zeros(n, np.int64), active, rewards, done, decided, False)
        self._decided[lane] = -1

    def decided_jobs(self) -> Ints:
        """(N,) job that the latest `step` decided in each lane ("none for now" included), -1 before."""
        return self._decided.copy()

    def marks(self) -> Floats:
        """(N, 0): a job is decided once here, so its value needs no totals from before."""
        return np.zeros((self.n_lanes, 0), np.float64)

    def values(self, lane: int, jobs: Ints, marks: Floats) -> Floats:
        """(D, 3) value components of the deployments of `jobs` in a finished episode.

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        return np.asarray(self.lanes.values[lane, jobs], np.float64)

    def clock(self) -> Ints:
        """(N,) slice whose decision is awaited, or in which the last job ended."""
        return self.lanes.lane[:, at.TIME].copy()

    def shown_jobs(self) -> Ints:
        """(N, J) job in each row of the window; meaningless where there is none."""
        return self.lanes.buffer[:, : self.spec.window].astype(np.int64)

    def stays(self, lane: int) -> Floats:
        """(n, 3) slices in which each job of a finished episode arrived, was deployed and ended.

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        arrival = self.tables.job[self.lanes.slot[lane], :, at.ARRIVAL]
        job = self.lanes.job[lane]
        return np.stack([arrival, job[:, at.DEPLOYED_AT], job[:, at.ENDED_AT]], 1).astype(np.float64)

    def outcomes(self, lane: int, jobs: Ints, marks: Floats) -> Floats:
        """(D, 2) what became of jobs of a finished episode: deadlines missed, and mean AR / SR - 1.

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        job, data = self.lanes.job[lane, jobs], self.tables.job[self.lanes.slot[lane], jobs]
        misses = job[:, at.MISSED_UNQUEUED] + job[:, at.MISSED_QUEUED]
        delay = job[:, at.ACTUAL] / (data[:, at.STANDARD] * data[:, at.EXECUTIONS]) - 1.0
        return np.stack([misses, delay], 1)

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode in a lane, keyed by `spec.metrics` (see `episode_metrics`).

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        metrics = episode_metrics(self.lanes, self.tables, lane)
        return {name: metrics[name] for name in self.spec.metrics}

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of the workload of an episode, the only thing random here."""
        return draw_workload(self.config, key).fingerprint()

    def copy_lanes(self, sources: Ints, targets: Ints) -> None:
        """Make lane targets[k] an exact copy of lane sources[k], in order, observation included.

        Copies share the workload in memory; their states are their own from then on.
        """
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            if target != source:
                for array in (*self.lanes, *self._seen, self._decided):
                    array[target] = array[source]

    def limit_arrivals(self, lanes: Ints, further: int) -> None:
        """Let only `further` more jobs arrive in these lanes; their episodes end when those have ended.

        Rewards keep the scale of the whole workload; metrics are means over the jobs that arrived.

        Raises:
            ValueError: if `further` < 0.
        """
        if further < 0:
            raise ValueError(f"further arrivals must be >= 0, got {further}")
        state = self.lanes.lane
        limit = np.minimum(state[lanes, at.LIMIT], state[lanes, at.ARRIVED] + further)
        state[lanes, at.LIMIT] = limit

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far. Raises WorldError unless the world was made with record=True."""
        if not self.rules.record:
            raise WorldError("this world keeps no history: make it with record=True to draw it")
        return lane_timeline(self.lanes, self.tables, self.rules, self.spec, lane)

    def _begin(self, key: EpisodeKey, lane: int) -> None:
        self.load(draw_workload(self.config, key), lane)

    def _step(self, actions: Ints, active: Bools, rewards: Floats, done: Bools) -> int:
        return self._call(actions, active, rewards, done, self._decided, True)

    def _call(
        self, actions: Ints, active: Bools, rewards: Floats, done: Bools, decided: Ints, deciding: bool
    ) -> int:
        world = (self.lanes, self.tables, self.rules)
        return int(step_batch(*world, actions, active, self._seen, rewards, done, decided, deciding))

    def _ended(self, lane: int) -> bool:
        return bool(self.lanes.lane[lane, at.EPISODE_DONE])

    def _why_masked(self, cluster: int) -> str:
        return f"column {cluster} means 'none for now', which needs allow_none=True"

    def _fill(self, slot: int, workload: Workload) -> None:
        job, pair, uses_peak = self.tables.job[slot], self.tables.pair[slot], self.tables.uses_peak[slot]
        job[:, at.ARRIVAL] = workload.arrival
        job[:, at.CATEGORY] = workload.category
        job[:, at.STANDARD] = workload.standard
        job[:, at.EXECUTIONS] = workload.executions
        job[:, at.PERIOD] = workload.period
        job[:, at.PEAK_SLOTS] = workload.peak_slots
        job[:, at.SENSITIVITY] = workload.sensitivity
        job[:, at.EXPECTED_HETERO] = workload.expected_hetero
        pair[:, :, at.REQUEST] = workload.request
        pair[:, :, at.PEAK_REQUEST] = workload.peak_request
        pair[:, :, at.EXECUTION] = workload.execution
        pair[:, :, at.DEADLINE] = workload.deadline
        uses_peak[:] = False
        uses_peak[:, : workload.uses_peak.shape[1]] = workload.uses_peak
