"""The slice world as a `BatchWorld`: N lanes stepped by one call of compiled code."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from envs.simulation.series import Bools, Floats, Ints
from envs.simulation.slices import columns as at
from envs.simulation.slices.config import CHAPTER_4, CHAPTER_5, OBJECTIVES, SliceWorldConfig
from envs.simulation.slices.kernel import COMPONENTS, advance_lane, begin_lane, copy_lane
from envs.simulation.slices.metrics import HIGHER_IS_BETTER, METRICS, episode_metrics, lane_timeline
from envs.simulation.slices.observe import observe_lane, step_batch
from envs.simulation.slices.state import Lanes, Rules, Tables, make_lanes, make_rules, make_tables
from envs.simulation.slices.workload import Workload, draw_workload, longest_delay
from envs.simulation.snapshot import arrays_of, empty_observation
from envs.simulation.timeline import Timeline
from envs.simulation.world import CompiledWorld, EpisodeKey, WorldError, WorldSpec

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
        advance_lane(self.lanes, self.tables, self.rules, lane)
        self._decided[lane] = -1
        self._show(lane)

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
        """Metrics of the finished episode in a lane, keyed by `spec.metrics` (see `metrics.episode_metrics`).

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
                copy_lane(self.lanes, source, target)
                self._decided[target] = self._decided[source]
                self._show(target)

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
        """What happened in a lane so far.

        Raises:
            WorldError: unless the world was made with record=True.
        """
        if not self.rules.record:
            raise WorldError("this world keeps no history: make it with record=True to draw it")
        return lane_timeline(self.lanes, self.tables, self.rules, self.spec, lane)

    def _begin(self, key: EpisodeKey, lane: int) -> None:
        self.load(draw_workload(self.config, key), lane)

    def _step(self, actions: Ints, active: Bools, rewards: Floats, done: Bools) -> int:
        clusters, occupation, jobs, pairs, mask = self._seen
        given = (
            self.lanes,
            self.tables,
            self.rules,
            actions,
            active,
            clusters,
            occupation,
            jobs,
            pairs,
            mask,
        )
        return int(step_batch(*given, rewards, done, self._decided))

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

    def _show(self, lane: int) -> None:
        clusters, occupation, jobs, pairs, mask = self._seen
        world, seen = (self.lanes, self.tables, self.rules), (clusters[lane], occupation[lane], jobs[lane])
        observe_lane(*world, lane, *seen, pairs[lane], mask[lane])
