"""What the jobs deployed in a lane will need, as far as it is known: the columns FREE_AHEAD and SHORTAGE.

Whoever deploys a stream knows when its batches come and how long they run; which of them ask for the peak
request is not known, so a coming batch counts with its mean request. Jobs that will still arrive are
unknown as well: SHORTAGE keeps a share of every cluster for them.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation import columns as col
from envs.simulation.slices import columns as at
from envs.simulation.slices.queues import request_now
from envs.simulation.slices.state import Lanes, Rules, Tables
from envs.simulation.slices.workload import REQUEST_SLOTS

HORIZON = 1000
"""Slices that are looked ahead for SHORTAGE."""
SOON = 125
"""Slices over which FREE_AHEAD is the mean."""
RESERVE = 0.07
"""Share of a cluster's executors that SHORTAGE keeps for jobs that will arrive.

These three were chosen on episodes of the split "train" of chapter 4's three patterns."""


@njit(cache=True, error_model="numpy")
def mean_request(tables: Tables, s: int, j: int, c: int) -> float:
    """Executors that a batch of job j (row of slot s) asks for on cluster c, on average."""
    request = float(tables.pair[s, j, c, at.REQUEST])
    peaks = tables.job[s, j, at.PEAK_SLOTS] / REQUEST_SLOTS
    return float(request + peaks * (tables.pair[s, j, c, at.PEAK_REQUEST] - request))


@njit(cache=True, error_model="numpy")
def _hold(changes: NDArray[np.float64], begin: int, end: int, executors: float) -> None:
    """Add executors held from slice `begin` (included) to `end`, counted from now."""
    begin, end = max(begin, 0), min(end, HORIZON)
    if begin < end:
        changes[begin] += executors
        changes[end] -= executors


@njit(cache=True, error_model="numpy")
def occupied_ahead(lanes: Lanes, tables: Tables, i: int, occupied: NDArray[np.float64]) -> None:
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


@njit(cache=True, error_model="numpy")
def shortage(tables: Tables, s: int, j: int, c: int, occupied: NDArray[np.float64], limit: float) -> float:
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


@njit(cache=True, error_model="numpy")
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
