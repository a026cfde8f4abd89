"""The slice world as a `BatchWorld`: N lanes stepped by one call of compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from envs.simulation.slices import columns as at
from envs.simulation.slices.config import CHAPTER_4, CHAPTER_5, OBJECTIVES, SliceWorldConfig
from envs.simulation.slices.kernel import COMPONENTS, advance_lane, begin_lane, copy_lane
from envs.simulation.slices.metrics import HIGHER_IS_BETTER, METRICS, episode_metrics, lane_timeline
from envs.simulation.slices.observe import observe_lane, step_batch
from envs.simulation.slices.state import (
    Lanes,
    Rules,
    Tables,
    make_lanes,
    make_rules,
    make_tables,
)
from envs.simulation.slices.workload import Workload, draw_workload, longest_delay
from envs.simulation.snapshot import Observation, empty_observation
from envs.simulation.timeline import Timeline
from envs.simulation.world import EpisodeKey, WorldError, WorldSpec

_NAMES = {CHAPTER_5: "multicluster", CHAPTER_4: "chapter4"}
_WEIGHTS = {CHAPTER_5: (1.0, 0.05, 5.0), CHAPTER_4: (1.0, 1.0, 1.0)}
# Typical magnitudes under MAF; chapter 4 counts misses of all clusters, times gamma.
_SCALES = {CHAPTER_5: (5.0, 20.0, 0.25), CHAPTER_4: (2.0, 2.0, 0.1)}


class SliceWorld:
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

    spec: WorldSpec
    n_lanes: int
    observation: Observation

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
        if n_lanes < 1:
            raise WorldError(f"a world needs at least one lane, got n_lanes={n_lanes}")
        self.n_lanes = n_lanes
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
        self._decided = np.full(n_lanes, -1, np.int64)
        self._everyone = np.ones(n_lanes, np.bool_)

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """Start the episode keys[k] in lane lanes[k] (all lanes if None) and show its first decision."""
        chosen = range(self.n_lanes) if lanes is None else lanes
        if len(keys) != len(chosen):
            raise ValueError(f"{len(keys)} episode keys for {len(chosen)} lanes: give one per lane")
        for key, lane in zip(keys, chosen, strict=True):
            self.load(draw_workload(self.config, key), lane)

    def load(self, workload: Workload, lane: int = 0) -> None:
        """Start an episode with a given workload in a lane.

        Raises:
            WorldError: if the workload does not fit this world (see `Workload.validate`).
        """
        workload.validate(self.config)
        slot = self._free_slot(lane)
        self._fill(slot, workload)
        self.lanes.slot[lane] = slot
        begin_lane(self.lanes, lane)
        advance_lane(self.lanes, self.tables, self.rules, lane)
        self._decided[lane] = -1
        self._show(lane)

    def step(
        self, actions: NDArray[np.int64], active: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Take one decision in every active lane: (reward (N,), done (N,)). Inactive lanes give 0, True.

        Raises:
            ValueError: for an action outside the mask of its lane, or a lane that has ended; nothing changes.
        """
        rewards = np.empty(self.n_lanes, np.float64)
        dones = np.empty(self.n_lanes, np.bool_)
        observation = self.observation
        failed = step_batch(
            self.lanes,
            self.tables,
            self.rules,
            actions,
            self._everyone if active is None else active,
            observation["clusters"],
            observation["occupation"],
            observation["jobs"],
            observation["pairs"],
            observation["action_mask"],
            rewards,
            dones,
            self._decided,
        )
        if failed >= 0:
            raise ValueError(self._refusal(failed, int(actions[failed])))
        return rewards, dones

    def decided_jobs(self) -> NDArray[np.int64]:
        """(N,) job that the latest `step` decided in each lane ("none for now" included), -1 before."""
        return self._decided.copy()

    def marks(self) -> NDArray[np.float64]:
        """(N, 0): a job is decided once here, so its value needs no totals from before."""
        return np.zeros((self.n_lanes, 0), np.float64)

    def values(self, lane: int, jobs: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
        """(D, 3) value components of the deployments of `jobs` in a finished episode.

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        return np.asarray(self.lanes.values[lane, jobs], np.float64)

    def clock(self) -> NDArray[np.int64]:
        """(N,) slice whose decision is awaited, or in which the last job ended."""
        return self.lanes.lane[:, at.TIME].copy()

    def shown_jobs(self) -> NDArray[np.int64]:
        """(N, J) job in each row of the window; meaningless where there is none."""
        return self.lanes.buffer[:, : self.spec.window].astype(np.int64)

    def stays(self, lane: int) -> NDArray[np.float64]:
        """(n, 3) slices in which each job of a finished episode arrived, was deployed and ended.

        Raises:
            ValueError: while the lane has not ended.
        """
        self._require_done(lane)
        arrival = self.tables.job[self.lanes.slot[lane], :, at.ARRIVAL]
        job = self.lanes.job[lane]
        return np.stack([arrival, job[:, at.DEPLOYED_AT], job[:, at.ENDED_AT]], 1).astype(np.float64)

    def outcomes(self, lane: int, jobs: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
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

    def copy_lanes(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Make lane targets[k] an exact copy of lane sources[k], in order, observation included.

        Copies share the workload in memory; their states are their own from then on.
        """
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            if target != source:
                copy_lane(self.lanes, source, target)
                self._decided[target] = self._decided[source]
                self._show(target)

    def limit_arrivals(self, lanes: NDArray[np.int64], further: int) -> None:
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

    def _free_slot(self, lane: int) -> int:
        """A row of the tables that no other lane plays (clones share rows, so one is always free)."""
        others = {int(slot) for k, slot in enumerate(self.lanes.slot) if k != lane}
        own = int(self.lanes.slot[lane])
        return own if own not in others else next(k for k in range(self.n_lanes) if k not in others)

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
        observation = self.observation
        observe_lane(
            self.lanes,
            self.tables,
            self.rules,
            lane,
            observation["clusters"][lane],
            observation["occupation"][lane],
            observation["jobs"][lane],
            observation["pairs"][lane],
            observation["action_mask"][lane],
        )

    def _require_done(self, lane: int) -> None:
        if not self.lanes.lane[lane, at.EPISODE_DONE]:
            raise ValueError(f"the episode in lane {lane} has not ended: values and metrics come at its end")

    def _refusal(self, lane: int, action: int) -> str:
        """Why a lane cannot take an action, in one line."""
        state = self.lanes.lane[lane]
        if state[at.EPISODE_DONE]:
            return f"lane {lane} has ended: reset it, or leave it out with `active`"
        n_clusters, window = self.spec.n_clusters, self.spec.window
        if not 0 <= action < self.spec.n_actions:
            return f"action {action} of lane {lane} is outside 0..{self.spec.n_actions - 1}"
        position, cluster = divmod(action, n_clusters + 1)
        shown = min(int(state[at.BUFFERED]), window)
        if position >= shown:
            reason = f"position {position} holds no job ({shown} jobs are shown)"
        else:
            reason = f"column {cluster} means 'none for now', which needs allow_none=True"
        return f"action {action} of lane {lane} is invalid: {reason}; choose where action_mask is 1"
