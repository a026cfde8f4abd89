"""The one snapshot format and the one encoder, shared by every world and by the live scheduler.

A decision is always: this one task -> which cluster, or none for now. A *snapshot* describes, in physical
units, everything a policy may look at when it takes that decision. Simulators and the live scheduler fill
the *base* columns below; `derive_into` (the encoder) computes the *derived* columns and the action mask.
Nothing else may: that is what makes a policy trained here run unchanged in front of real clusters.

Units: seconds, USD, GB, executors (integers). The chapter 4/5 worlds of Liu 2022 count in *slices*; one slice
is a nominal second there. Missing values are 0, and a flag column says so where 0 would be ambiguous.
A job's or pair's row beyond the jobs at hand is all zeros (`JobField.PRESENT` is 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypedDict, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
MaskArray = NDArray[np.int8]
Amount = TypeVar("Amount", int, FloatArray)

HISTORY_STEPS = 105
"""Occupation steps kept per cluster (Liu 2022, Table 5.1: the latest 105 steps)."""
REFERENCE_HETERO = 70.0
"""`HETERO_FACTOR` of speed 1 outside Liu 2022's own worlds: that of a V100 in the market worlds."""
FULLY_SENSITIVE = 5.0
"""`SENSITIVITY` of a task whose time is proportional to the speed: the largest that policies trained with."""
RENTED = 1
"""`PROVIDER` of what is rented from a provider without a number of its own."""


def request_beyond(capacity_max: Amount) -> Amount:
    """`REQUEST` of a task where it may not go: more than a cluster of that `CAPACITY_MAX` can ever have."""
    return 2 * capacity_max + 1


class Category(IntEnum):
    """Job categories: Cate-1, Cate-2 and Cate-3 of Liu 2022, section 5.2, and tasks that train in rounds."""

    STREAMING = 1
    TIME_CRITICAL = 2
    GENERAL = 3
    FEDERATED = 4  # a client or the server of a federated application (not in Liu 2022)


class ClusterField(IntEnum):
    """Columns of `clusters` (C rows: one per cluster or offer)."""

    SEQUENCE = 0  # 1-based number of the cluster
    CAPACITY_NORMAL = 1  # executors without elastic extension (0 for an offer that starts empty)
    CAPACITY_MAX = 2  # executors at full extension, or the quota of an offer
    CAPACITY_NOW = 3  # executors in effect now (an available offer: its quota)
    HETERO_FACTOR = 4  # relative speed, larger is faster
    USED = 5  # executors that run or boot now
    HALTED = 6  # executors requested by executions that wait inside the cluster
    MISSED = 7  # deadlines missed on this cluster in this episode
    MEAN_OCCUPATION = 8  # mean occupation ratio over the latest 100 steps that exist
    PRICE_USD_HOUR = 9  # per executor, now (0 on owned clusters)
    ON_DEMAND_USD_HOUR = 10  # the same instance type on demand in that region (0 on owned clusters)
    IS_SPOT = 11  # 1 if the provider may interrupt
    AVAILABLE = 12  # 1 if a launch is believed possible now
    UP_RATIO = 13  # share of the latest 24 h in which the offer was available
    SPELL_S = 14  # seconds since availability last changed
    MEAN_UP_S = 15  # mean length of the up-spells seen in the latest 7 days (0 if none or not spot)
    LAUNCH_S = 16  # expected seconds from request to running
    NOTICE_S = 17  # seconds of interruption notice
    PROVIDER = 18  # 0 owned, 1 aws, 2 gcp, 3 azure
    REGION = 19  # region number within the world
    QUEUES = 20  # 1 if a job put here may wait inside (local FIFO), 0 if it must fit at once


class JobField(IntEnum):
    """Columns of `jobs` (J rows: the jobs that await a decision, by arrival)."""

    PRESENT = 0
    CATEGORY = 1  # Category
    EXPECTED_HETERO = 2  # hetero factor the standard time refers to
    SENSITIVITY = 3  # heterogeneity sensitivity measure (Liu 2022, section 5.3)
    STANDARD_S = 4  # standard time of one execution (batch), or of all the work
    EXECUTIONS = 5  # executions (batches) left; 1 for non-streaming jobs
    PERIOD_S = 6  # batch period, 0 for non-streaming jobs
    DURATION_S = 7  # executions left * period, or the standard time left
    PEAK_SLOTS = 8  # of 10 request slots, how many hold the peak request
    WAITED_S = 9  # seconds since the job entered (or re-entered) the buffer
    AGE_S = 10  # seconds since the job arrived
    SLACK_S = 11  # seconds until the next deadline (negative when late), 0 without a deadline
    HAS_DEADLINE = 12
    PROGRESS = 13  # share of the work that is done and saved, 0..1
    RESTART_S = 14  # fixed seconds to set up on fresh instances
    CHECKPOINT_INTERVAL_S = 15  # 0 if the job takes none
    DATA_GB = 16  # input data to be read where the job starts
    CHECKPOINT_GB = 17
    INTERRUPTIONS = 18  # interruptions so far
    RUNNING = 19  # 1 if the job runs now and may be moved ("none" = leave it)
    MISSES = 20  # deadlines missed by the job so far
    BACKLOG = 21  # streaming batches due and not finished
    # Tasks of category FEDERATED only, 0 for all others. Expected times are estimates from what was measured.
    IDLE = 22  # 1 if it holds an instance and waits for others: its own offer keeps it, "none" releases it
    IS_SERVER = 23  # 1 for the server of an application, 0 for a client
    OWES = 24  # 1 if its result of the current round is still to come
    ROUND_LEFT_S = 25  # expected seconds until all others of its round have delivered (0: it is the last)
    ROUND_S = 26  # expected seconds of a whole round of its application, aggregation included
    COLD_S = 27  # what its first execution on a new instance takes longer
    HAS_BUDGET = 28
    BUDGET_LEFT_USD = 29
    OTHERS_USD_HOUR = 30  # price of all instances that its application holds beside its own, now
    TIME_ERROR_S = 31  # by how much expected ends of rounds and launches of its application were off lately


class PairField(IntEnum):
    """Columns of `pairs` (J x C rows: this job on that cluster). From FREE on they are derived."""

    REQUEST = 0  # executors asked for (the mode of the request distribution)
    PEAK_REQUEST = 1
    EXECUTION_S = 2  # one execution there without waiting; for one-shot jobs: the work that is left
    DEADLINE_S = 3  # time allowed for it there, from now or from the batch's due time; 0 without deadline
    EGRESS_USD = 4  # data transfer to put the job there now
    TRANSFER_S = 5  # seconds to move data, restore and set up before work begins
    HERE = 6  # 1 if the job runs, or hibernates, there
    FREE = 7  # capacity now - used - halted (may be negative)
    FITS = 8  # 1 if the request fits in the free executors and a launch is believed possible
    EXECUTION_RATIO = 9  # EXECUTION_S / STANDARD_S left
    IMPROPER = 10  # 1 if the deadline is missed there even without waiting (IH, Liu 2022 eq. 5.1)
    FINISH_S = 11  # launch + transfer + work, if nothing waits or breaks (streaming: one batch)
    COST_USD = 12  # egress + price * request * time until the job's end, at the price of now


N_CLUSTER_FIELDS = len(ClusterField)
N_JOB_FIELDS = len(JobField)
N_PAIR_FIELDS = len(PairField)

# Plain integers for the compiled code below.
_C_CAPACITY_MAX = int(ClusterField.CAPACITY_MAX)
_C_CAPACITY_NOW = int(ClusterField.CAPACITY_NOW)
_C_USED = int(ClusterField.USED)
_C_HALTED = int(ClusterField.HALTED)
_C_PRICE = int(ClusterField.PRICE_USD_HOUR)
_C_AVAILABLE = int(ClusterField.AVAILABLE)
_C_LAUNCH = int(ClusterField.LAUNCH_S)
_C_QUEUES = int(ClusterField.QUEUES)
_J_PRESENT = int(JobField.PRESENT)
_J_CATEGORY = int(JobField.CATEGORY)
_J_STANDARD = int(JobField.STANDARD_S)
_J_DURATION = int(JobField.DURATION_S)
_J_HAS_DEADLINE = int(JobField.HAS_DEADLINE)
_J_PROGRESS = int(JobField.PROGRESS)
_J_RUNNING = int(JobField.RUNNING)
_J_IDLE = int(JobField.IDLE)
_P_REQUEST = int(PairField.REQUEST)
_P_EXECUTION = int(PairField.EXECUTION_S)
_P_DEADLINE = int(PairField.DEADLINE_S)
_P_EGRESS = int(PairField.EGRESS_USD)
_P_TRANSFER = int(PairField.TRANSFER_S)
_P_HERE = int(PairField.HERE)
_P_FREE = int(PairField.FREE)
_P_FITS = int(PairField.FITS)
_P_RATIO = int(PairField.EXECUTION_RATIO)
_P_IMPROPER = int(PairField.IMPROPER)
_P_FINISH = int(PairField.FINISH_S)
_P_COST = int(PairField.COST_USD)
_STREAMING = int(Category.STREAMING)


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


@dataclass(frozen=True)
class Snapshot:
    """A system at the moment of a decision: base columns only, jobs by arrival.

    Attributes:
        clusters: (C, N_CLUSTER_FIELDS).
        occupation: (C, HISTORY_STEPS).
        jobs: (n, N_JOB_FIELDS); n may exceed the window of an observation.
        pairs: (n, C, N_PAIR_FIELDS), derived columns ignored.
        allow_none: whether "none for now" may be chosen while a cluster can be.
    """

    clusters: FloatArray
    occupation: FloatArray
    jobs: FloatArray
    pairs: FloatArray
    allow_none: bool


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
        if jobs[j, _J_PRESENT] == 0.0:
            for c in range(n_clusters + 1):
                mask[base + c] = 0
            continue
        streaming = jobs[j, _J_CATEGORY] == _STREAMING
        standard_left = jobs[j, _J_STANDARD]
        if not streaming:
            standard_left *= 1.0 - jobs[j, _J_PROGRESS]
        idle = jobs[j, _J_IDLE] > 0.0
        any_valid = False
        for c in range(n_clusters):
            request = pairs[j, c, _P_REQUEST]
            execution = pairs[j, c, _P_EXECUTION]
            start = clusters[c, _C_LAUNCH] + pairs[j, c, _P_TRANSFER]
            free = clusters[c, _C_CAPACITY_NOW] - clusters[c, _C_USED] - clusters[c, _C_HALTED]
            available = clusters[c, _C_AVAILABLE] > 0.0
            here = pairs[j, c, _P_HERE] > 0.0
            finish = execution if here else start + execution
            occupied = finish
            if streaming:
                occupied = jobs[j, _J_DURATION] + (0.0 if here else start)
            pairs[j, c, _P_FREE] = free
            pairs[j, c, _P_FITS] = 1.0 if available and request <= free else 0.0
            pairs[j, c, _P_RATIO] = execution / standard_left if standard_left > 0.0 else 0.0
            late = jobs[j, _J_HAS_DEADLINE] > 0.0 and finish > pairs[j, c, _P_DEADLINE]
            pairs[j, c, _P_IMPROPER] = 1.0 if late else 0.0
            pairs[j, c, _P_FINISH] = finish
            egress = 0.0 if here else pairs[j, c, _P_EGRESS]
            pairs[j, c, _P_COST] = egress + clusters[c, _C_PRICE] * request * occupied / 3600.0
            if here:
                valid = idle  # what an idle task holds it may keep, whatever else there is to rent now
            else:
                valid = available and request <= clusters[c, _C_CAPACITY_MAX]
                if valid and clusters[c, _C_QUEUES] == 0.0:
                    valid = request <= free
            mask[base + c] = 1 if valid else 0
            any_valid = any_valid or valid
        none_valid = allow_none or jobs[j, _J_RUNNING] > 0.0 or idle or not any_valid
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


def take_rows(observations: Observation, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Observation:
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
