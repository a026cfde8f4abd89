"""What `mtdqn` sees of a job and of a job on a cluster: shares and ratios that mean the same in any
system.

Nothing here depends on the number of clusters, on their order or on how many executors they have, so one
network serves any infrastructure. Compared with the state of Liu 2022, Table 5.1, it adds halted requests,
the capacity in effect, what extension is left, the batch period, and what follows from them for each pair.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.mtdqn import columns as at
from agents.rules.compiled import compiled
from envs.simulation import columns as col
from envs.simulation.snapshot import HISTORY_STEPS, Category, ObservationArrays


@compiled
def _bounded(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))


@compiled
def count_jobs(obs: ObservationArrays) -> int:
    """Jobs of the window that are present; they come first."""
    count = 0
    for job in range(obs.jobs.shape[0]):
        if obs.jobs[job, col.PRESENT] > 0.0:
            count += 1
    return count


@compiled
def describe_clusters(obs: ObservationArrays, places: NDArray[np.float32]) -> None:
    """Fill the first ten columns of `places` (C, columns), and SIZE: they depend on no job."""
    n_clusters = obs.clusters.shape[0]
    mean_capacity = 0.0
    mean_speed = 0.0
    for c in range(n_clusters):
        mean_capacity += max(1.0, obs.clusters[c, col.CAPACITY_NOW]) / n_clusters
        mean_speed += obs.clusters[c, col.HETERO_FACTOR] / n_clusters
    for c in range(n_clusters):
        row = obs.clusters[c]
        place = places[c]
        capacity = max(1.0, row[col.CAPACITY_NOW])
        place[at.LOAD] = row[col.MEAN_OCCUPATION]
        place[at.LOAD_NOW] = obs.occupation[c, HISTORY_STEPS - 1]
        total = 0.0
        for k in range(HISTORY_STEPS - 10, HISTORY_STEPS):
            total += obs.occupation[c, k]
        place[at.LOAD_10] = total / 10.0
        for k in range(HISTORY_STEPS - 30, HISTORY_STEPS - 10):
            total += obs.occupation[c, k]
        place[at.LOAD_30] = total / 30.0
        place[at.HALTED] = min(2.0, row[col.HALTED] / capacity)
        place[at.FREE] = max(-2.0, (capacity - row[col.USED] - row[col.HALTED]) / capacity)
        place[at.EXTENSIBLE] = 5.0 * (row[col.CAPACITY_MAX] - capacity) / capacity
        place[at.EXTENSION] = 5.0 * (capacity - row[col.CAPACITY_NORMAL]) / capacity
        place[at.SPEED] = 5.0 * (row[col.HETERO_FACTOR] / mean_speed - 1.0) if mean_speed > 0.0 else 0.0
        square = 0.0
        for k in range(HISTORY_STEPS - 100, HISTORY_STEPS):
            square += (obs.occupation[c, k] - row[col.MEAN_OCCUPATION]) ** 2
        place[at.UNREST] = 3.0 * np.sqrt(square / 100.0)
        place[at.SIZE] = np.log(capacity / mean_capacity)


@compiled
def describe_job(
    obs: ObservationArrays, job: int, n_jobs: int, places: NDArray[np.float32], seen: NDArray[np.float32]
) -> None:
    """Fill `seen` (N_JOB_COLUMNS,) and the other columns of `places`, given `describe_clusters`.

    Args:
        obs: one observation.
        job: row of the window.
        n_jobs: jobs present.
        places: (C, N_PLACE_COLUMNS or N_COMMITTED_COLUMNS), changed in place.
        seen: overwritten.
    """
    n_clusters = obs.clusters.shape[0]
    row = obs.jobs[job]
    streaming = 1.0 if row[col.CATEGORY] == Category.STREAMING.value else 0.0
    general = 1.0 if row[col.CATEGORY] == Category.GENERAL.value else 0.0
    standard = max(1.0, row[col.STANDARD_S])
    best_ratio = np.inf
    most_free = -np.inf
    request = mean_capacity = mean_speed = mean_load = mean_free = roomy = proper = 0.0
    for c in range(n_clusters):
        pair = obs.pairs[job, c]
        request += pair[col.REQUEST] / n_clusters
        mean_capacity += max(1.0, obs.clusters[c, col.CAPACITY_NOW]) / n_clusters
        mean_speed += obs.clusters[c, col.HETERO_FACTOR] / n_clusters
        mean_load += places[c, at.LOAD] / n_clusters
        mean_free += places[c, at.FREE] / n_clusters
        most_free = max(most_free, places[c, at.FREE])
        if pair[col.IMPROPER] == 0.0:
            proper += 1.0 / n_clusters
            best_ratio = min(best_ratio, pair[col.EXECUTION_RATIO])
            if pair[col.FREE] >= pair[col.PEAK_REQUEST]:
                roomy += 1.0 / n_clusters
    if proper == 0.0:
        best_ratio = 1.0
    seen[at.STREAMING] = streaming
    seen[at.TIME_CRITICAL] = 1.0 if row[col.CATEGORY] == Category.TIME_CRITICAL.value else 0.0
    seen[at.GENERAL] = general
    seen[at.LOG_STANDARD] = np.log(standard / 60.0)
    seen[at.LOG_EXECUTIONS] = np.log(max(1.0, row[col.EXECUTIONS])) / 3.0
    seen[at.PERIOD_SLACK] = streaming * (row[col.PERIOD_S] / standard - 1.0)
    seen[at.SENSITIVITY] = row[col.SENSITIVITY] / 5.0
    seen[at.EXPECTED_SPEED] = 5.0 * (row[col.EXPECTED_HETERO] / mean_speed - 1.0) if mean_speed > 0.0 else 0.0
    seen[at.MEAN_REQUEST] = 10.0 * request / mean_capacity
    seen[at.BUFFERED] = min(2.0, n_jobs / 5.0)
    seen[at.PEAK_SLOTS] = row[col.PEAK_SLOTS] / 4.0
    seen[at.MEAN_LOAD] = mean_load
    seen[at.MEAN_FREE] = mean_free
    seen[at.MOST_FREE] = most_free
    seen[at.SHARE_ROOMY] = roomy
    seen[at.SHARE_PROPER] = proper
    for c in range(n_clusters):
        pair = obs.pairs[job, c]
        place = places[c]
        capacity = max(1.0, obs.clusters[c, col.CAPACITY_NOW])
        regret = pair[col.EXECUTION_RATIO] - best_ratio
        room = pair[col.FREE] - pair[col.REQUEST]
        peak_room = pair[col.FREE] - pair[col.PEAK_REQUEST]
        place[at.RATIO] = pair[col.EXECUTION_RATIO] - 1.0
        place[at.REGRET] = regret
        place[at.IMPROPER] = pair[col.IMPROPER]
        place[at.IMPROPER_EXECUTIONS] = pair[col.IMPROPER] * row[col.EXECUTIONS] / 20.0
        place[at.FITS] = 1.0 if room >= 0.0 else 0.0
        place[at.ROOM] = _bounded(room / capacity, -2.0, 1.0)
        place[at.PEAK_FITS] = 1.0 if peak_room >= 0.0 else 0.0
        place[at.PEAK_ROOM] = _bounded(peak_room / capacity, -2.0, 1.0)
        place[at.PEAK_ROOM_REQUESTS] = _bounded(
            peak_room / (1.5 * max(1.0, pair[col.PEAK_REQUEST])), -2.0, 2.0
        )
        place[at.REQUEST] = 5.0 * pair[col.REQUEST] / capacity
        place[at.SLACK] = (
            _bounded(3.0 * (pair[col.DEADLINE_S] - pair[col.EXECUTION_S]) / standard, -3.0, 3.0)
            if pair[col.DEADLINE_S] > 0.0
            else 1.0
        )
        place[at.LOAD_ABOVE_MEAN] = place[at.LOAD] - mean_load
        place[at.FREE_ABOVE_MEAN] = place[at.FREE] - mean_free
        place[at.STREAMING_LOAD] = streaming * place[at.LOAD]
        place[at.STREAMING_PEAK_ROOM] = streaming * place[at.PEAK_ROOM]
        place[at.STREAMING_RATIO] = streaming * pair[col.EXECUTION_RATIO]
        place[at.GENERAL_REGRET] = general * regret
        if places.shape[1] == at.N_COMMITTED_COLUMNS:
            place[at.FREE_AHEAD] = obs.clusters[c, col.FREE_AHEAD] / capacity
            place[at.SHORTAGE] = min(1.0, pair[col.SHORTAGE] / max(1.0, request))
