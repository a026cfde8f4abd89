"""The state of N lanes of a market world as arrays: plain data, cheap to copy, shared with compiled code.

Times are integer seconds since the episode's start. Money is kept in exact integers, `CHARGES_PER_USD` to the
dollar: prices are whole micro-dollars per hour, and a charge is (micro-dollars per hour) x seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.guards import GuardRules
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.round_estimates import UNKNOWN
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import (
    HISTORY_STEPS,
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    FloatArray,
    MaskArray,
)

NEVER = 1 << 60
CHARGES_PER_USD = 3_600_000_000
SAMPLE_S = 300
"""Occupation is sampled this often."""
MEAN_STEPS = 100
"""Samples in `MEAN_OCCUPATION`."""

N_MARKS = 5


class Lanes(NamedTuple):
    """Everything that changes while N episodes run. N lanes, C offers, J shown jobs, M jobs at most.

    The columns of the last axes are named in `columns`.
    """

    episode_of_lane: Ints  # (N,) slot of `Episodes` that the lane plays
    lane: Ints  # (N, columns)
    lane_real: Floats  # (N, columns)
    counters: Ints  # (N, at.COUNTER_COLUMNS)
    mark: Floats  # (N, N_MARKS) running totals of the decided job just before its decision
    window: Ints  # (N, J) jobs that may be decided now, by arrival
    open: Ints  # (N, M) jobs that have arrived and not ended, by arrival; some may just have ended
    queue: Ints  # (N, M) jobs that wait inside owned clusters, in order
    log: Ints  # (N, L, at.LOG_COLUMNS) what happened, for drawing; L is 0 where nothing is kept
    offer: Ints  # (N, C, columns)
    occupation: (
        FloatArray  # (N, C, 2 * HISTORY_STEPS) share used: a ring, twice, so that it can be read in one piece
    )
    when: Ints  # (N, M, columns) apart from `job`, because every instant looks through it
    job: Ints  # (N, M, columns)
    job_real: Floats  # (N, M, columns)
    # What the safety net sees of one job: rows as of an observation, written when it looks.
    net_clusters: FloatArray  # (N, C, N_CLUSTER_FIELDS)
    net_job: FloatArray  # (N, 1, N_JOB_FIELDS)
    net_pairs: FloatArray  # (N, 1, C, N_PAIR_FIELDS)
    net_mask: MaskArray  # (N, C + 1)


class Offers(NamedTuple):
    """What never changes about C offers in R regions."""

    fixed: Ints  # (C, columns)
    chance: Floats  # (C, columns)
    egress_charge_gb: Floats  # (R, R) charges per GB, from row to column
    seconds_per_gb: Floats  # (R, R)
    decay: Floats  # beta ** 0, 1, 2, ...


class Rules(NamedTuple):
    """Scalars of a world."""

    decision_interval_s: int
    reconsider_interval_s: int
    failure_s: int
    restart_s: int
    strict_fifo: int
    miss_usd: float
    batch_miss_usd: float
    delay_usd_hour: float
    max_decisions: int
    max_s: int
    elastic_step: int
    elastic_window_s: int
    federated: int  # 1 if some jobs are tasks of federated applications
    epoch_spread: float  # an epoch takes up to this share more or less than usual
    guards: GuardRules


def empty_lanes(n_lanes: int, window: int, n_offers: int, max_jobs: int, log_rows: int = 0) -> Lanes:
    """Lanes before their first reset: they play nothing and have ended."""
    lanes = Lanes(
        episode_of_lane=np.full(n_lanes, -1, np.int64),
        lane=np.zeros((n_lanes, at.LOG_N + 1), np.int64),
        lane_real=np.zeros((n_lanes, at.DELAY_CLOSED + 1), np.float64),
        counters=np.zeros((n_lanes, at.COUNTER_COLUMNS), np.int64),
        mark=np.zeros((n_lanes, N_MARKS), np.float64),
        window=np.zeros((n_lanes, window), np.int64),
        open=np.zeros((n_lanes, max_jobs), np.int64),
        queue=np.zeros((n_lanes, max_jobs), np.int64),
        log=np.zeros((n_lanes, log_rows, at.LOG_COLUMNS), np.int64),
        offer=np.zeros((n_lanes, n_offers, at.OFFER_COLUMNS), np.int64),
        occupation=np.zeros((n_lanes, n_offers, 2 * HISTORY_STEPS), np.float32),
        when=np.zeros((n_lanes, max_jobs, at.NET_S + 1), np.int64),
        job=np.zeros((n_lanes, max_jobs, at.JOB_COLUMNS), np.int64),
        job_real=np.zeros((n_lanes, max_jobs, at.JOB_REAL_COLUMNS), np.float64),
        net_clusters=np.zeros((n_lanes, n_offers, N_CLUSTER_FIELDS), np.float32),
        net_job=np.zeros((n_lanes, 1, N_JOB_FIELDS), np.float32),
        net_pairs=np.zeros((n_lanes, 1, n_offers, N_PAIR_FIELDS), np.float32),
        net_mask=np.zeros((n_lanes, n_offers + 1), np.int8),
    )
    lanes.lane[:, at.STATUS] = at.TRUNCATED
    lanes.lane[:, at.DECIDED] = -1
    return lanes


def copy_lanes(lanes: Lanes, sources: Ints, targets: Ints) -> None:
    """Make lane targets[k] an exact copy of lane sources[k], for every k."""
    for array in cast("tuple[NDArray[Any], ...]", lanes):
        array[targets] = array[sources]


def clear_lane(lanes: Lanes, lane: int, slot: int, n_jobs: int) -> None:
    """Put a lane at the start of the episode in `slot`, before its first instant."""
    for array in cast("tuple[NDArray[Any], ...]", lanes):
        array[lane] = 0
    lanes.episode_of_lane[lane] = slot
    lanes.lane[lane, at.LIMIT] = n_jobs
    lanes.lane[lane, at.DECIDED] = -1
    lanes.when[lane] = NEVER
    lanes.offer[lane, :, at.FULL_S] = -NEVER
    for column in (at.OFFER, at.TARGET, at.CHECKPOINT_REGION):
        lanes.job[lane, :, column] = -1
    lanes.job_real[lane, :, at.TIMES : at.LAUNCH_ERROR_S + 1] = UNKNOWN


@inner
def capacity_now(lanes: Lanes, offers: Offers, lane: int, c: int) -> int:
    """Executors of an offer in effect: of an elastic cluster, its own and those added."""
    return int(offers.fixed[c, at.QUOTA] - offers.fixed[c, at.ELASTIC] + lanes.offer[lane, c, at.EXTENSION])


@inner
def log_event(lanes: Lanes, lane: int, kind: int, job: int, offer: int, start_s: int, late: int) -> None:
    """Note what happened up to now, if this world keeps a log with room for it."""
    n = lanes.lane[lane, at.LOG_N]
    if n < lanes.log.shape[1]:
        row = lanes.log[lane, n]
        row[at.LOG_KIND] = kind
        row[at.LOG_JOB] = job
        row[at.LOG_OFFER] = offer
        row[at.LOG_START_S] = start_s
        row[at.LOG_END_S] = lanes.lane[lane, at.NOW_S]
        row[at.LOG_LATE] = late
        lanes.lane[lane, at.LOG_N] = n + 1


# Random draws inside compiled code: a pure function of (stream key, job, attempt, purpose). Nothing is
# consumed, so no draw depends on which other draws a policy caused before (splitmix64: Steele, Lea and Flood
# 2014, "Fast splittable pseudorandom number generators").

LATENCY = 0
FAILURE = 1
NOTICE = 2
EPOCH = 3

_JOB = np.uint64(0x9E3779B97F4A7C15)
_ATTEMPT = np.uint64(0xC2B2AE3D27D4EB4F)
_PURPOSE = np.uint64(0x165667B19E3779F9)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_S11 = np.uint64(11)


@inner
def uniform(key: np.uint64, job: int, attempt: int, purpose: int) -> float:
    """A number in [0, 1) that belongs to this attempt of this job and to nothing else.

    Args:
        key: stream key (`Streams.key`).
        job: job number.
        attempt: launch attempt of the job, from 1 (EPOCH: round, from 1).
        purpose: LATENCY, FAILURE, NOTICE or EPOCH.
    """
    x = key + np.uint64(job + 1) * _JOB + np.uint64(attempt) * _ATTEMPT + np.uint64(purpose + 1) * _PURPOSE
    x = (x ^ (x >> _S30)) * _MIX_A
    x = (x ^ (x >> _S27)) * _MIX_B
    x = x ^ (x >> _S31)
    return float(x >> _S11) * (1.0 / 9007199254740992.0)
