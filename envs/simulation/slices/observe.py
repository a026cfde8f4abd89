"""What a policy sees of a lane of the slice world: base columns of the snapshot, then the encoder."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation.slices.kernel import is_valid, step_lane
from envs.simulation.slices.state import (
    NOBODY,
    ClusterState,
    JobData,
    Lanes,
    LaneState,
    PairData,
    Rules,
    Tables,
)
from envs.simulation.snapshot import (
    HISTORY_STEPS,
    Category,
    ClusterField,
    JobField,
    PairField,
    derive_into,
)

OCCUPATION_MEAN_STEPS = 100
"""Steps that `ClusterField.MEAN_OCCUPATION` looks back (MAF's "past time window")."""

_ARRIVAL = int(JobData.ARRIVAL)
_CATEGORY = int(JobData.CATEGORY)
_STANDARD = int(JobData.STANDARD)
_EXECUTIONS = int(JobData.EXECUTIONS)
_PERIOD = int(JobData.PERIOD)
_PEAK_SLOTS = int(JobData.PEAK_SLOTS)
_SENSITIVITY = int(JobData.SENSITIVITY)
_HETERO = int(JobData.EXPECTED_HETERO)
_REQUEST = int(PairData.REQUEST)
_PEAK_REQUEST = int(PairData.PEAK_REQUEST)
_EXECUTION = int(PairData.EXECUTION)
_DEADLINE = int(PairData.DEADLINE)
_L_TIME = int(LaneState.TIME)
_L_BUFFERED = int(LaneState.BUFFERED)
_L_DONE = int(LaneState.DONE)
_L_DECIDED = int(LaneState.DECIDED)
_C_USED = int(ClusterState.USED)
_C_HALTED = int(ClusterState.HALTED)
_C_EXTENSION = int(ClusterState.EXTENSION)
_C_MISSED = int(ClusterState.MISSED)

_GENERAL = int(Category.GENERAL)
_STREAMING = int(Category.STREAMING)
_CF_SEQUENCE = int(ClusterField.SEQUENCE)
_CF_NORMAL = int(ClusterField.CAPACITY_NORMAL)
_CF_MAX = int(ClusterField.CAPACITY_MAX)
_CF_NOW = int(ClusterField.CAPACITY_NOW)
_CF_HETERO = int(ClusterField.HETERO_FACTOR)
_CF_USED = int(ClusterField.USED)
_CF_HALTED = int(ClusterField.HALTED)
_CF_MISSED = int(ClusterField.MISSED)
_CF_MEAN = int(ClusterField.MEAN_OCCUPATION)
_CF_AVAILABLE = int(ClusterField.AVAILABLE)
_CF_UP_RATIO = int(ClusterField.UP_RATIO)
_CF_QUEUES = int(ClusterField.QUEUES)
_JF_PRESENT = int(JobField.PRESENT)
_JF_CATEGORY = int(JobField.CATEGORY)
_JF_HETERO = int(JobField.EXPECTED_HETERO)
_JF_SENSITIVITY = int(JobField.SENSITIVITY)
_JF_STANDARD = int(JobField.STANDARD_S)
_JF_EXECUTIONS = int(JobField.EXECUTIONS)
_JF_PERIOD = int(JobField.PERIOD_S)
_JF_DURATION = int(JobField.DURATION_S)
_JF_PEAK_SLOTS = int(JobField.PEAK_SLOTS)
_JF_WAITED = int(JobField.WAITED_S)
_JF_AGE = int(JobField.AGE_S)
_JF_SLACK = int(JobField.SLACK_S)
_JF_HAS_DEADLINE = int(JobField.HAS_DEADLINE)
_PF_REQUEST = int(PairField.REQUEST)
_PF_PEAK = int(PairField.PEAK_REQUEST)
_PF_EXECUTION = int(PairField.EXECUTION_S)
_PF_DEADLINE = int(PairField.DEADLINE_S)


@njit(cache=True, error_model="numpy")
def mean_occupation(lanes: Lanes, i: int, c: int) -> float:
    """Mean occupation ratio of cluster c over the latest 100 slices that exist (0 before the first)."""
    time = lanes.lane[i, _L_TIME]
    steps = min(time, OCCUPATION_MEAN_STEPS)
    if steps == 0:
        return 0.0
    total = 0.0
    place = (time - steps) % HISTORY_STEPS
    for _ in range(steps):
        total += lanes.occupation[i, c, place]
        place += 1
        if place == HISTORY_STEPS:
            place = 0
    return float(total / steps)


@njit(cache=True, error_model="numpy")
def _observe_clusters(
    lanes: Lanes, rules: Rules, i: int, clusters: NDArray[np.float32], occupation: NDArray[np.float32]
) -> None:
    time = lanes.lane[i, _L_TIME]
    steps = min(time, HISTORY_STEPS)
    for c in range(rules.normal.shape[0]):
        state = lanes.cluster[i, c]
        row = clusters[c]
        row[_CF_SEQUENCE] = c + 1
        row[_CF_NORMAL] = rules.normal[c]
        row[_CF_MAX] = rules.normal[c] + rules.extension_max[c]
        row[_CF_NOW] = rules.normal[c] + state[_C_EXTENSION]
        row[_CF_HETERO] = rules.factor[c]
        row[_CF_USED] = state[_C_USED]
        row[_CF_HALTED] = state[_C_HALTED]
        row[_CF_MISSED] = state[_C_MISSED]
        row[_CF_MEAN] = mean_occupation(lanes, i, c)
        row[_CF_AVAILABLE] = 1.0
        row[_CF_UP_RATIO] = 1.0
        row[_CF_QUEUES] = 1.0
        occupation[c, : HISTORY_STEPS - steps] = 0.0
        place = (time - steps) % HISTORY_STEPS
        for k in range(HISTORY_STEPS - steps, HISTORY_STEPS):
            occupation[c, k] = lanes.occupation[i, c, place]
            place += 1
            if place == HISTORY_STEPS:
                place = 0


@njit(cache=True, error_model="numpy")
def _observe_jobs(
    lanes: Lanes, tables: Tables, i: int, jobs: NDArray[np.float32], pairs: NDArray[np.float32]
) -> None:
    time = lanes.lane[i, _L_TIME]
    s = lanes.slot[i]
    shown = min(lanes.lane[i, _L_BUFFERED], jobs.shape[0])
    jobs[:, :] = 0.0
    pairs[shown:, :, :] = 0.0
    for k in range(shown):
        j = lanes.buffer[i, k]
        data = tables.job[s, j]
        row = jobs[k]
        row[_JF_PRESENT] = 1.0
        row[_JF_CATEGORY] = data[_CATEGORY]
        row[_JF_HETERO] = data[_HETERO]
        row[_JF_SENSITIVITY] = data[_SENSITIVITY]
        row[_JF_STANDARD] = data[_STANDARD]
        row[_JF_EXECUTIONS] = data[_EXECUTIONS]
        row[_JF_PERIOD] = data[_PERIOD]
        streaming = data[_CATEGORY] == _STREAMING
        row[_JF_DURATION] = data[_EXECUTIONS] * data[_PERIOD] if streaming else data[_STANDARD]
        row[_JF_PEAK_SLOTS] = data[_PEAK_SLOTS]
        row[_JF_WAITED] = time - data[_ARRIVAL]
        row[_JF_AGE] = time - data[_ARRIVAL]
        tightest = tables.pair[s, j, 0, _DEADLINE]
        for c in range(pairs.shape[1]):
            pair = tables.pair[s, j, c]
            pairs[k, c, _PF_REQUEST] = pair[_REQUEST]
            pairs[k, c, _PF_PEAK] = pair[_PEAK_REQUEST]
            pairs[k, c, _PF_EXECUTION] = pair[_EXECUTION]
            pairs[k, c, _PF_DEADLINE] = pair[_DEADLINE]
            tightest = min(tightest, pair[_DEADLINE])
        if data[_CATEGORY] != _GENERAL:
            # The deadline counts from the deployment, so it does not shrink while the job waits here.
            row[_JF_SLACK] = tightest
            row[_JF_HAS_DEADLINE] = 1.0


@njit(cache=True, error_model="numpy")
def observe_lane(
    lanes: Lanes,
    tables: Tables,
    rules: Rules,
    i: int,
    clusters: NDArray[np.float32],
    occupation: NDArray[np.float32],
    jobs: NDArray[np.float32],
    pairs: NDArray[np.float32],
    mask: NDArray[np.int8],
) -> None:
    """Write the observation of lane i at its decision, in place. The arrays are those of one lane.

    Columns that have no meaning here (markets, transfers, progress) stay 0. An ended lane shows no jobs.
    """
    _observe_clusters(lanes, rules, i, clusters, occupation)
    _observe_jobs(lanes, tables, i, jobs, pairs)
    derive_into(clusters, jobs, pairs, rules.allow_none, mask)


@njit(cache=True, error_model="numpy", nogil=True)
def step_batch(
    lanes: Lanes,
    tables: Tables,
    rules: Rules,
    actions: NDArray[np.int64],
    active: NDArray[np.bool_],
    clusters: NDArray[np.float32],
    occupation: NDArray[np.float32],
    jobs: NDArray[np.float32],
    pairs: NDArray[np.float32],
    mask: NDArray[np.int8],
    rewards: NDArray[np.float64],
    dones: NDArray[np.bool_],
    decided: NDArray[np.int64],
) -> int:
    """One decision in every active lane, observations written: -1, or the first lane that cannot take its.

    Nothing is changed if an action is invalid or an active lane has ended.
    """
    for i in range(actions.shape[0]):
        if active[i] and (
            lanes.lane[i, _L_DONE] == 1 or not is_valid(lanes, rules, i, jobs.shape[1], actions[i])
        ):
            return i
    for i in range(actions.shape[0]):
        rewards[i] = 0.0
        dones[i] = True
        decided[i] = NOBODY
        if active[i]:
            rewards[i] = step_lane(lanes, tables, rules, i, actions[i])
            dones[i] = lanes.lane[i, _L_DONE] == 1
            decided[i] = lanes.lane[i, _L_DECIDED]
            observe_lane(lanes, tables, rules, i, clusters[i], occupation[i], jobs[i], pairs[i], mask[i])
    return -1
