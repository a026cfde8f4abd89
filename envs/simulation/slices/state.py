"""The arrays of a slice world: episode tables, lane state and fixed rules, laid out for compiled code.

The columns of their last axes are named in `columns`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.slices import columns as at
from spotweave.envs.simulation.slices.config import CHAPTER_4, OBJECTIVES, SliceWorldConfig
from spotweave.envs.simulation.snapshot import HISTORY_STEPS

NOBODY = -1
"""End of a linked list, or "no job"."""


class Tables(NamedTuple):
    """Workloads of S episodes (slots): what every policy meets alike."""

    job: NDArray[np.int32]  # (S, n, at.JOB_DATA_COLUMNS) int32
    pair: NDArray[np.int32]  # (S, n, C, at.PAIR_DATA_COLUMNS) int32
    uses_peak: Bools  # (S, n, E) bool, whether execution k of the job asks for the peak request


class Lanes(NamedTuple):
    """Everything that changes while N lanes run. Copying row `a` onto row `b` clones a lane."""

    slot: Ints  # (N,) row of `Tables` that the lane plays
    lane: Ints  # (N, at.LANE_COLUMNS) int64
    cluster: Ints  # (N, C, at.CLUSTER_COLUMNS) int64
    job: NDArray[np.int32]  # (N, n, at.JOB_COLUMNS) int32
    decayed: Floats  # (N, n, 2) float64, sums of decayed W_j and W_cl of section 5.3
    values: Floats  # (N, n, 3) float64, value components, filled when a job ends
    buffer: NDArray[np.int32]  # (N, n) int32, jobs in the global buffer by arrival
    active: NDArray[np.int32]  # (N, n) int32, jobs deployed and not ended, in no order
    due: NDArray[np.int32]  # (N, n) int32, scratch: jobs with an event in this slice
    wheel: NDArray[np.int32]  # (N, W) int32, first job of each slot of the time wheel
    # (N, C, HISTORY_STEPS) float32, ring: the ratio of slice t is at t % HISTORY_STEPS
    occupation: NDArray[np.float32]
    starts: NDArray[np.int32]  # (N, n, E) int32, start of each execution; (N, 0, 0) unless recorded


class Rules(NamedTuple):
    """What is fixed for a world."""

    normal: Ints  # (C,) executors without extension
    extension_max: Ints  # (C,) most executors added (0: not elastic)
    factor: Floats  # (C,) hetero factors
    decay: Floats  # (n + 1,) beta to the power of 0..n
    elastic_step: int  # executors added or given back at once
    elastic_window: int  # slices looked back
    elastic_threshold: float  # occupation ratio
    allow_none: bool  # a decision may deploy nothing
    strict_fifo: bool  # local queues block behind their head
    record: bool  # fill `Lanes.starts`
    forecast: bool  # observations hold what `forecast` foresees
    miss_cost: float  # what a miss costs in the objective
    delay_cost: float  # what an ended job's mean AR / SR - 1 costs in the objective
    chapter4: bool  # values by eq. 4.1 and 4.2 instead of section 5.3
    p_m: float  # eq. 5.1
    p_psi: float  # eq. 5.1
    lam: float  # eq. 4.1
    gamma: float  # eq. 4.1
    eta: float  # eq. 4.1


def make_rules(config: SliceWorldConfig, record: bool) -> Rules:
    """The fixed rules of a validated configuration."""
    elastic = np.asarray(config.elastic, np.bool_)
    value = config.value
    return Rules(
        normal=np.asarray(config.capacities, np.int64),
        extension_max=np.where(elastic, config.elastic_max, 0).astype(np.int64),
        factor=np.asarray(config.hetero_factors, np.float64),
        decay=np.array([value.beta**k for k in range(config.n_jobs + 1)], np.float64),
        elastic_step=int(config.elastic_step),
        elastic_window=int(config.elastic_window),
        elastic_threshold=float(config.elastic_threshold),
        allow_none=bool(config.allow_none),
        strict_fifo=bool(config.strict_fifo),
        record=record,
        forecast=bool(config.forecast),
        miss_cost=OBJECTIVES[value.kind].miss,
        delay_cost=OBJECTIVES[value.kind].delay / config.n_jobs,
        chapter4=value.kind == CHAPTER_4,
        p_m=float(value.p_m),
        p_psi=float(value.p_psi),
        lam=float(value.lam),
        gamma=float(value.gamma),
        eta=float(value.eta),
    )


def make_tables(config: SliceWorldConfig, slots: int) -> Tables:
    """Empty tables for `slots` episodes."""
    n, clusters = config.n_jobs, len(config.capacities)
    return Tables(
        job=np.zeros((slots, n, at.JOB_DATA_COLUMNS), np.int32),
        pair=np.zeros((slots, n, clusters, at.PAIR_DATA_COLUMNS), np.int32),
        uses_peak=np.zeros((slots, n, config.workload.executions[1]), np.bool_),
    )


def make_lanes(config: SliceWorldConfig, n_lanes: int, wheel_slots: int, record: bool) -> Lanes:
    """Lanes that play nothing yet (all done)."""
    n, clusters = config.n_jobs, len(config.capacities)
    executions = config.workload.executions[1]
    lane = np.zeros((n_lanes, at.LANE_COLUMNS), np.int64)
    lane[:, at.EPISODE_DONE] = 1
    return Lanes(
        slot=np.arange(n_lanes, dtype=np.int64),
        lane=lane,
        cluster=np.zeros((n_lanes, clusters, at.CLUSTER_COLUMNS), np.int64),
        job=np.zeros((n_lanes, n, at.JOB_COLUMNS), np.int32),
        decayed=np.zeros((n_lanes, n, 2), np.float64),
        values=np.zeros((n_lanes, n, 3), np.float64),
        buffer=np.zeros((n_lanes, n), np.int32),
        active=np.zeros((n_lanes, n), np.int32),
        due=np.zeros((n_lanes, n), np.int32),
        wheel=np.full((n_lanes, wheel_slots), NOBODY, np.int32),
        occupation=np.zeros((n_lanes, clusters, HISTORY_STEPS), np.float32),
        starts=np.zeros((n_lanes, n if record else 0, executions if record else 0), np.int32),
    )
