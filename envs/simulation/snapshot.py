"""The one snapshot format and the one encoder, shared by every world and by the live scheduler.

A decision is always: this one task -> which cluster, or none for now. A *snapshot* describes, in physical
units, everything a policy may look at when it takes that decision. Simulators and the live scheduler fill
the *base* columns below; `derive_into` (the encoder) computes the *derived* columns and the action mask.
Nothing else may: that is what makes a policy trained here run unchanged in front of real clusters.

Units: seconds, USD, GB, executors (integers). The chapter 4/5 worlds of Liu 2022 count in *slices*; one slice
is a nominal second there. Missing values are 0, and a flag column says so where 0 would be ambiguous.
A job's or pair's row beyond the jobs at hand is all zeros (`PRESENT` is 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypedDict

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Ints

FloatArray = NDArray[np.float32]
MaskArray = NDArray[np.int8]

HISTORY_STEPS = 105
"""Occupation steps kept per cluster (Liu 2022, Table 5.1: the latest 105 steps)."""
REFERENCE_HETERO = 70.0
"""`HETERO_FACTOR` of speed 1 outside Liu 2022's own worlds: that of a V100 in the market worlds."""
FULLY_SENSITIVE = 5.0
"""`SENSITIVITY` of a task whose time is proportional to the speed: the largest that policies trained with."""
RENTED = 1
"""`PROVIDER` of what is rented from a provider without a number of its own."""


@njit(cache=True)
def request_beyond(capacity_max: float) -> float:
    """`REQUEST` of a task where it may not go: more than a cluster of that `CAPACITY_MAX` can ever have."""
    return 2 * capacity_max + 1


class Category(IntEnum):
    """Job categories: Cate-1, Cate-2 and Cate-3 of Liu 2022, section 5.2, and tasks that train in rounds."""

    STREAMING = 1
    TIME_CRITICAL = 2
    GENERAL = 3
    FEDERATED = 4  # a client or the server of a federated application (not in Liu 2022)


N_CLUSTER_FIELDS = col.FREE_AHEAD + 1
N_JOB_FIELDS = col.TIME_ERROR_S + 1
N_PAIR_FIELDS = col.SHORTAGE + 1


class Observation(TypedDict):
    """What a policy sees. Shapes are for one world; a batch has one leading axis N.

    clusters (C, N_CLUSTER_FIELDS) float32; occupation (C, HISTORY_STEPS) float32 ratios, latest step last;
    jobs (J, N_JOB_FIELDS) float32; pairs (J, C, N_PAIR_FIELDS) float32; action_mask (J * (C + 1),) int8.
    Action `job * (C + 1) + cluster` puts the job on the cluster; `cluster == C` is "none for now".
    """

    clusters: FloatArray
    occupation: FloatArray
    jobs: FloatArray
    pairs: FloatArray
    action_mask: MaskArray


class ObservationArrays(NamedTuple):
    """An observation, or a batch of them, as compiled code takes it: the arrays of `Observation`."""

    clusters: FloatArray
    occupation: FloatArray
    jobs: FloatArray
    pairs: FloatArray
    mask: MaskArray


def contiguous(observation: Observation) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, MaskArray]:
    """The arrays of an observation or of a batch in the order of `ObservationArrays`."""
    return (
        np.ascontiguousarray(observation["clusters"], np.float32),
        np.ascontiguousarray(observation["occupation"], np.float32),
        np.ascontiguousarray(observation["jobs"], np.float32),
        np.ascontiguousarray(observation["pairs"], np.float32),
        np.ascontiguousarray(observation["action_mask"], np.int8),
    )


def arrays_of(observation: Observation) -> ObservationArrays:
    """An observation or a batch as compiled code takes it (see `contiguous`)."""
    return ObservationArrays(*contiguous(observation))


@dataclass(frozen=True)
class Snapshot:
    """A system at the moment of a decision: base columns only, jobs by arrival."""

    clusters: FloatArray  # (C, N_CLUSTER_FIELDS)
    occupation: FloatArray  # (C, HISTORY_STEPS)
    jobs: FloatArray  # (n, N_JOB_FIELDS); n may exceed the window of an observation
    pairs: FloatArray  # (n, C, N_PAIR_FIELDS), derived columns ignored
    allow_none: bool  # whether "none for now" may be chosen while a cluster can be


@njit(cache=True, error_model="numpy")
def derive_into(
    clusters: FloatArray, jobs: FloatArray, pairs: FloatArray, allow_none: bool, mask: MaskArray
) -> None:
    """Fill the derived pair columns and the action mask of one observation, in place.

    Args:
        clusters: (C, N_CLUSTER_FIELDS) float32, base columns filled.
        jobs: (J, N_JOB_FIELDS) float32.
        pairs: (J, C, N_PAIR_FIELDS) float32, base columns filled.
        allow_none: bool.
        mask: (J * (C + 1),) int8, overwritten.
    """
    n_jobs = jobs.shape[0]
    n_clusters = clusters.shape[0]
    for j in range(n_jobs):
        base = j * (n_clusters + 1)
        if jobs[j, col.PRESENT] == 0.0:
            for c in range(n_clusters + 1):
                mask[base + c] = 0
            continue
        streaming = jobs[j, col.CATEGORY] == Category.STREAMING.value
        standard_left = jobs[j, col.STANDARD_S]
        if not streaming:
            standard_left *= 1.0 - jobs[j, col.PROGRESS]
        idle = jobs[j, col.IDLE] > 0.0
        any_valid = False
        for c in range(n_clusters):
            request = pairs[j, c, col.REQUEST]
            execution = pairs[j, c, col.EXECUTION_S]
            start = clusters[c, col.LAUNCH_S] + pairs[j, c, col.TRANSFER_S]
            free = clusters[c, col.CAPACITY_NOW] - clusters[c, col.USED] - clusters[c, col.HALTED]
            available = clusters[c, col.AVAILABLE] > 0.0
            here = pairs[j, c, col.HERE] > 0.0
            finish = execution if here else start + execution
            occupied = finish
            if streaming:
                occupied = jobs[j, col.DURATION_S] + (0.0 if here else start)
            pairs[j, c, col.FREE] = free
            pairs[j, c, col.FITS] = 1.0 if available and request <= free else 0.0
            pairs[j, c, col.EXECUTION_RATIO] = execution / standard_left if standard_left > 0.0 else 0.0
            late = jobs[j, col.HAS_DEADLINE] > 0.0 and finish > pairs[j, c, col.DEADLINE_S]
            pairs[j, c, col.IMPROPER] = 1.0 if late else 0.0
            pairs[j, c, col.FINISH_S] = finish
            egress = 0.0 if here else pairs[j, c, col.EGRESS_USD]
            pairs[j, c, col.COST_USD] = egress + clusters[c, col.PRICE_USD_HOUR] * request * occupied / 3600.0
            if here:
                valid = idle  # what an idle task holds it may keep, whatever else there is to rent now
            else:
                valid = available and request <= clusters[c, col.CAPACITY_MAX]
                if valid and clusters[c, col.QUEUES] == 0.0:
                    valid = request <= free
            mask[base + c] = 1 if valid else 0
            any_valid = any_valid or valid
        none_valid = allow_none or jobs[j, col.RUNNING] > 0.0 or idle or not any_valid
        mask[base + n_clusters] = 1 if none_valid else 0


def empty_observation(n_jobs: int, n_clusters: int, batch: tuple[int, ...] = ()) -> Observation:
    """All-zero observation arrays for a window of `n_jobs` jobs and `n_clusters` clusters."""
    return {
        "clusters": np.zeros((*batch, n_clusters, N_CLUSTER_FIELDS), np.float32),
        "occupation": np.zeros((*batch, n_clusters, HISTORY_STEPS), np.float32),
        "jobs": np.zeros((*batch, n_jobs, N_JOB_FIELDS), np.float32),
        "pairs": np.zeros((*batch, n_jobs, n_clusters, N_PAIR_FIELDS), np.float32),
        "action_mask": np.zeros((*batch, n_jobs * (n_clusters + 1)), np.int8),
    }


def take_rows(observations: Observation, rows: Ints | Bools | slice) -> Observation:
    """Some rows of a batch of observations: copies, views for a slice, the batch itself for all."""
    if isinstance(rows, np.ndarray) and rows.dtype == np.bool_ and rows.all():
        return observations
    return {
        "clusters": observations["clusters"][rows],
        "occupation": observations["occupation"][rows],
        "jobs": observations["jobs"][rows],
        "pairs": observations["pairs"][rows],
        "action_mask": observations["action_mask"][rows],
    }


def encode(snapshot: Snapshot, window: int) -> Observation:
    """Pad a snapshot to `window` jobs (the first by arrival) and derive what follows from it.

    Raises:
        ValueError: if an array of the snapshot has the wrong shape or holds NaN.
    """
    n_clusters = snapshot.clusters.shape[0]
    n = snapshot.jobs.shape[0]
    expected = {
        "clusters": (n_clusters, N_CLUSTER_FIELDS),
        "occupation": (n_clusters, HISTORY_STEPS),
        "jobs": (n, N_JOB_FIELDS),
        "pairs": (n, n_clusters, N_PAIR_FIELDS),
    }
    for name, shape in expected.items():
        array = getattr(snapshot, name)
        if array.shape != shape:
            raise ValueError(f"snapshot.{name} has shape {array.shape}, expected {shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"snapshot.{name} holds a value that is not finite")
    observation = empty_observation(window, n_clusters)
    kept = min(n, window)
    observation["clusters"][:] = snapshot.clusters
    observation["occupation"][:] = snapshot.occupation
    observation["jobs"][:kept] = snapshot.jobs[:kept]
    observation["pairs"][:kept] = snapshot.pairs[:kept]
    derive_into(
        observation["clusters"],
        observation["jobs"],
        observation["pairs"],
        snapshot.allow_none,
        observation["action_mask"],
    )
    return observation
