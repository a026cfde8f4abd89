"""What a policy sees of a lane of the slice world: base columns of the snapshot, then the encoder."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.slices import columns as at
from spotweave.envs.simulation.slices.kernel import advance_lane, decide, is_valid, request_now
from spotweave.envs.simulation.slices.state import NOBODY, Lanes, Rules, Tables
from spotweave.envs.simulation.slices.workload import REQUEST_SLOTS
from spotweave.envs.simulation.snapshot import HISTORY_STEPS, Category, ObservationArrays, derive_into

# What the jobs deployed in a lane will need, as far as it is known: the columns FREE_AHEAD and SHORTAGE.
#
# Whoever deploys a stream knows when its batches come and how long they run; which of them ask for the peak
# request is not known, so a coming batch counts with its mean request. Jobs that will still arrive are
# unknown as well: SHORTAGE keeps a share of every cluster for them.

HORIZON = 1000
"""Slices that are looked ahead for SHORTAGE."""
SOON = 125
"""Slices over which FREE_AHEAD is the mean."""
RESERVE = 0.07
"""Share of a cluster's executors that SHORTAGE keeps for jobs that will arrive.

These three were chosen on episodes of the split "train" of chapter 4's three patterns."""


@linked()
def mean_request(tables: Tables, s: int, j: int, c: int) -> float:
    """Executors that a batch of job j (row of slot s) asks for on cluster c, on average."""
    request = float(tables.pair[s, j, c, at.REQUEST])
    peaks = tables.job[s, j, at.PEAK_SLOTS] / REQUEST_SLOTS
    return float(request + peaks * (tables.pair[s, j, c, at.PEAK_REQUEST] - request))


@linked()
def _hold(changes: Floats, begin: int, end: int, executors: float) -> None:
    """Add executors held from slice `begin` (included) to `end`, counted from now."""
    begin, end = max(begin, 0), min(end, HORIZON)
    if begin < end:
        changes[begin] += executors
        changes[end] -= executors


@linked()
def occupied_ahead(lanes: Lanes, tables: Tables, i: int, occupied: Floats) -> None:
    """Fill `occupied` (C, HORIZON + 1): executors that the deployed jobs are expected to hold in each slice.

    What waits is taken to start now, and a batch to start when it is due.
    """
    s, now = lanes.slot[i], lanes.lane[i, at.TIME]
    occupied[:, :] = 0.0
    for k in range(lanes.lane[i, at.ACTIVE]):
        j = lanes.active[i, k]
        job, data = lanes.job[i, j], tables.job[s, j]
        c = job[at.CLUSTER]
        execution = tables.pair[s, j, c, at.EXECUTION]
        coming = job[at.DONE]
        if job[at.PHASE] != at.BETWEEN:
            began = job[at.STARTED_AT] if job[at.PHASE] == at.RUNNING else now
            _hold(occupied[c], 0, began + execution - now, float(request_now(lanes, tables, i, j)))
            coming += 1
        executors = mean_request(tables, s, j, c)
        for batch in range(coming, data[at.EXECUTIONS]):
            begin = max(job[at.DEPLOYED_AT] + batch * data[at.PERIOD] - now, 0)
            if begin >= HORIZON:
                break
            _hold(occupied[c], begin, begin + execution, executors)
    for c in range(occupied.shape[0]):
        for t in range(1, HORIZON):
            occupied[c, t] += occupied[c, t - 1]


@linked()
def shortage(tables: Tables, s: int, j: int, c: int, occupied: Floats, limit: float) -> float:
    """Executors that lack on average over the slices in which job j would run, deployed to cluster c now.

    Args:
        tables: workloads.
        s: slot of the episode.
        j: a job that is not deployed.
        c: the cluster.
        occupied: (HORIZON + 1,) of the cluster, from `occupied_ahead`.
        limit: executors that may be held.
    """
    executors = mean_request(tables, s, j, c)
    execution, period = tables.pair[s, j, c, at.EXECUTION], tables.job[s, j, at.PERIOD]
    short, slices = 0.0, 0
    for batch in range(tables.job[s, j, at.EXECUTIONS]):
        begin = batch * period
        if begin >= HORIZON:
            break
        end = min(begin + execution, HORIZON)
        slices += end - begin
        for t in range(begin, end):
            over = occupied[t] + executors - limit
            if over > 0.0:
                short += min(over, executors)
    return short / slices


@linked()
def forecast_into(
    lanes: Lanes,
    tables: Tables,
    rules: Rules,
    i: int,
    clusters: NDArray[np.float32],
    pairs: NDArray[np.float32],
) -> None:
    """Write FREE_AHEAD and SHORTAGE of lane i for the jobs that are shown, in place."""
    s = lanes.slot[i]
    occupied = np.empty((clusters.shape[0], HORIZON + 1))
    occupied_ahead(lanes, tables, i, occupied)
    shown = min(lanes.lane[i, at.BUFFERED], pairs.shape[0])
    for c in range(clusters.shape[0]):
        capacity = float(rules.normal[c] + lanes.cluster[i, c, at.EXTENSION])
        free = 0.0
        for t in range(SOON):
            free += max(0.0, capacity - occupied[c, t])
        clusters[c, col.FREE_AHEAD] = free / SOON
        for k in range(shown):
            j = lanes.buffer[i, k]
            pairs[k, c, col.SHORTAGE] = shortage(tables, s, j, c, occupied[c], (1.0 - RESERVE) * capacity)


OCCUPATION_MEAN_STEPS = 100
"""Steps that `MEAN_OCCUPATION` looks back (MAF's "past time window")."""


@linked()
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


@linked()
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


@linked()
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


@linked()
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
    actions: Ints,
    active: Bools,
    seen: ObservationArrays,
    rewards: Floats,
    dones: Bools,
    decided: Ints,
    deciding: bool,
) -> int:
    """One decision in every active lane, observations written: -1, or the first lane that cannot take its.

    Nothing is changed if an action is invalid or an active lane has ended. Lanes that have just begun have no
    decision to take: with `deciding` False they go on to their first one.
    """
    window = seen.jobs.shape[1]
    for i in range(actions.shape[0] if deciding else 0):
        if active[i] and (
            lanes.lane[i, at.EPISODE_DONE] == 1 or not is_valid(lanes, rules, i, window, actions[i])
        ):
            return i
    for i in range(actions.shape[0]):
        rewards[i] = 0.0
        dones[i] = True
        decided[i] = NOBODY
        if active[i]:
            if deciding:
                decide(lanes, tables, rules, i, actions[i])
                decided[i] = lanes.lane[i, at.DECIDED]
            rewards[i] = advance_lane(lanes, tables, rules, i)
            dones[i] = lanes.lane[i, at.EPISODE_DONE] == 1
            clusters, occupation, jobs = seen.clusters[i], seen.occupation[i], seen.jobs[i]
            observe_lane(lanes, tables, rules, i, clusters, occupation, jobs, seen.pairs[i], seen.mask[i])
    return -1
