"""What a policy sees of a lane of the slice world: base columns of the snapshot, then the encoder."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation import columns as col
from envs.simulation.slices import columns as at
from envs.simulation.slices.forecast import forecast_into
from envs.simulation.slices.kernel import is_valid, step_lane
from envs.simulation.slices.state import (
    NOBODY,
    Lanes,
    Rules,
    Tables,
)
from envs.simulation.snapshot import (
    HISTORY_STEPS,
    Category,
    derive_into,
)

OCCUPATION_MEAN_STEPS = 100
"""Steps that `MEAN_OCCUPATION` looks back (MAF's "past time window")."""


@njit(cache=True, error_model="numpy")
def mean_occupation(lanes: Lanes, i: int, c: int) -> float:
    """Mean occupation ratio of cluster c over the latest 100 slices that exist (0 before the first)."""
    time = lanes.lane[i, at.TIME]
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
    time = lanes.lane[i, at.TIME]
    steps = min(time, HISTORY_STEPS)
    for c in range(rules.normal.shape[0]):
        state = lanes.cluster[i, c]
        row = clusters[c]
        row[col.SEQUENCE] = c + 1
        row[col.CAPACITY_NORMAL] = rules.normal[c]
        row[col.CAPACITY_MAX] = rules.normal[c] + rules.extension_max[c]
        row[col.CAPACITY_NOW] = rules.normal[c] + state[at.EXTENSION]
        row[col.HETERO_FACTOR] = rules.factor[c]
        row[col.USED] = state[at.USED]
        row[col.HALTED] = state[at.HALTED]
        row[col.MISSED] = state[at.MISSED]
        row[col.MEAN_OCCUPATION] = mean_occupation(lanes, i, c)
        row[col.AVAILABLE] = 1.0
        row[col.UP_RATIO] = 1.0
        row[col.QUEUES] = 1.0
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
    time = lanes.lane[i, at.TIME]
    s = lanes.slot[i]
    shown = min(lanes.lane[i, at.BUFFERED], jobs.shape[0])
    jobs[:, :] = 0.0
    pairs[shown:, :, :] = 0.0
    for k in range(shown):
        j = lanes.buffer[i, k]
        data = tables.job[s, j]
        row = jobs[k]
        row[col.PRESENT] = 1.0
        row[col.CATEGORY] = data[at.CATEGORY]
        row[col.EXPECTED_HETERO] = data[at.EXPECTED_HETERO]
        row[col.SENSITIVITY] = data[at.SENSITIVITY]
        row[col.STANDARD_S] = data[at.STANDARD]
        row[col.EXECUTIONS] = data[at.EXECUTIONS]
        row[col.PERIOD_S] = data[at.PERIOD]
        streaming = data[at.CATEGORY] == Category.STREAMING.value
        row[col.DURATION_S] = data[at.EXECUTIONS] * data[at.PERIOD] if streaming else data[at.STANDARD]
        row[col.PEAK_SLOTS] = data[at.PEAK_SLOTS]
        row[col.WAITED_S] = time - data[at.ARRIVAL]
        row[col.AGE_S] = time - data[at.ARRIVAL]
        tightest = tables.pair[s, j, 0, at.DEADLINE]
        for c in range(pairs.shape[1]):
            pair = tables.pair[s, j, c]
            pairs[k, c, col.REQUEST] = pair[at.REQUEST]
            pairs[k, c, col.PEAK_REQUEST] = pair[at.PEAK_REQUEST]
            pairs[k, c, col.EXECUTION_S] = pair[at.EXECUTION]
            pairs[k, c, col.DEADLINE_S] = pair[at.DEADLINE]
            tightest = min(tightest, pair[at.DEADLINE])
        if data[at.CATEGORY] != Category.GENERAL.value:
            # The deadline counts from the deployment, so it does not shrink while the job waits here.
            row[col.SLACK_S] = tightest
            row[col.HAS_DEADLINE] = 1.0


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

    Columns that have no meaning here (markets, transfers, progress) stay 0, and so do those of `forecast`
    where the world does without. An ended lane shows no jobs.
    """
    _observe_clusters(lanes, rules, i, clusters, occupation)
    _observe_jobs(lanes, tables, i, jobs, pairs)
    if rules.forecast and lanes.lane[i, at.BUFFERED] > 0:
        forecast_into(lanes, tables, rules, i, clusters, pairs)
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
            lanes.lane[i, at.EPISODE_DONE] == 1 or not is_valid(lanes, rules, i, jobs.shape[1], actions[i])
        ):
            return i
    for i in range(actions.shape[0]):
        rewards[i] = 0.0
        dones[i] = True
        decided[i] = NOBODY
        if active[i]:
            rewards[i] = step_lane(lanes, tables, rules, i, actions[i])
            dones[i] = lanes.lane[i, at.EPISODE_DONE] == 1
            decided[i] = lanes.lane[i, at.DECIDED]
            observe_lane(lanes, tables, rules, i, clusters[i], occupation[i], jobs[i], pairs[i], mask[i])
    return -1
