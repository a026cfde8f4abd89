"""The scorer's forward pass and its choice, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, is_open, mean_request, row_of
from agents.rules.committed import committed_cost
from agents.rules.compiled import compiled
from agents.rules.tuned import tuned_cost
from agents.scorer.columns import N_COMMITTED_COLUMNS, N_JOB_COLUMNS
from agents.scorer.inputs import count_jobs, describe_clusters, describe_job
from envs.simulation.snapshot import ObservationArrays

WORST = 60.0
"""Bound on what the rule's cost may take off a score, so that learned terms always matter."""
PRIORITY_WEIGHT = 0.3
REQUEST_UNIT = 50.0
"""Executors that weigh as much as 1 in a priority: for the job with `committed`, against it with `tuned`."""
COMMITTED_UNIT = 100.0
"""Executors of the committed rule's cost that weigh as much as 1 in a score."""


@compiled
def _score_places(
    seen: NDArray[np.float32],
    places: NDArray[np.float32],
    vector: NDArray[np.float32],
    hidden: int,
    base: NDArray[np.float32],
    unit: NDArray[np.float32],
    scores: NDArray[np.float32],
    priorities: NDArray[np.float32],
) -> None:
    """Fill `scores` and `priorities` (C,) with the network's two outputs; `base`, `unit` (H,) are scratch."""
    first_place = N_JOB_COLUMNS * hidden
    n_columns = places.shape[1]
    first_bias = first_place + n_columns * hidden
    first_score = first_bias + hidden
    first_priority = first_score + hidden
    first_direct = first_priority + hidden
    for i in range(hidden):
        base[i] = vector[first_bias + i]
    for k in range(N_JOB_COLUMNS):
        x = seen[k]
        if x != 0.0:
            for i in range(hidden):
                base[i] += x * vector[k * hidden + i]
    for c in range(places.shape[0]):
        score = np.float32(0.0)
        for i in range(hidden):
            unit[i] = base[i]
        for k in range(n_columns):
            x = places[c, k]
            if x != 0.0:
                score += x * vector[first_direct + k]
                row = first_place + k * hidden
                for i in range(hidden):
                    unit[i] += x * vector[row + i]
        priority = np.float32(0.0)
        for i in range(hidden):
            if unit[i] > 0.0:
                score += unit[i] * vector[first_score + i]
                priority += unit[i] * vector[first_priority + i]
        scores[c] = score
        priorities[c] = priority


@njit(cache=True, error_model="numpy")
def score_job(
    obs: ObservationArrays,
    job: int,
    n_jobs: int,
    rule: NDArray[np.float64],
    vector: NDArray[np.float32],
    hidden: int,
    places: NDArray[np.float32],
    scores: NDArray[np.float32],
    priorities: NDArray[np.float32],
) -> None:
    """Scores of a job on every cluster (C,): the network's output minus the rule's cost.

    `places` holds what `describe_clusters` wrote; its width says which rule is corrected. `priorities` (C,)
    say how much the job should be decided first if it goes there; its request counts as in the rule.
    """
    seen = np.empty(N_JOB_COLUMNS, np.float32)
    base = np.empty(hidden, np.float32)
    unit = np.empty(hidden, np.float32)
    describe_job(obs, job, n_jobs, places, seen)
    _score_places(seen, places, vector, hidden, base, unit, scores, priorities)
    committed = places.shape[1] == N_COMMITTED_COLUMNS
    largeness = mean_request(obs, job) / REQUEST_UNIT * (1.0 if committed else -1.0)
    for c in range(obs.clusters.shape[0]):
        if committed:
            cost = committed_cost(obs, job, c, rule) / COMMITTED_UNIT
        else:
            cost = tuned_cost(obs, job, c, rule)
        scores[c] -= np.float32(min(WORST, cost))
        priorities[c] = PRIORITY_WEIGHT * priorities[c] + largeness


@njit(cache=True, error_model="numpy")
def choose(
    obs: ObservationArrays, rule: NDArray[np.float64], vector: NDArray[np.float32], hidden: int, columns: int
) -> int:
    """The flat action for one observation; NO_ACTION if nothing is valid.

    Each job is matched with the valid cluster of its highest score; of these pairs the one of highest
    priority is taken, the first to arrive among equals. A job waits only where no cluster is valid, and
    comes last then.
    """
    n_clusters = obs.clusters.shape[0]
    n_jobs = count_jobs(obs)
    places = np.empty((n_clusters, columns), np.float32)
    scores = np.empty(n_clusters, np.float32)
    priorities = np.empty(n_clusters, np.float32)
    describe_clusters(obs, places)
    action = NO_ACTION
    waiting = NO_ACTION
    highest = -np.inf
    for job in range(n_jobs):
        if not is_open(obs, job):
            continue
        first = job * (n_clusters + 1)
        score_job(obs, job, n_jobs, rule, vector, hidden, places, scores, priorities)
        best = -1
        for c in range(n_clusters):
            if obs.mask[first + c] != 0 and (best < 0 or scores[c] > scores[best]):
                best = c
        if best < 0:
            if waiting == NO_ACTION:
                waiting = first + n_clusters
        elif action == NO_ACTION or priorities[best] > highest:
            action = first + best
            highest = priorities[best]
    return waiting if action == NO_ACTION else action


@njit(cache=True, error_model="numpy", nogil=True)
def choose_rows(
    batch: ObservationArrays,
    rows: NDArray[np.int64],
    rule: NDArray[np.float64],
    vectors: NDArray[np.float32],
    which: NDArray[np.int64],
    hidden: int,
    columns: int,
    actions: NDArray[np.int64],
) -> None:
    """Fill `actions` (n,) for rows of a batch, rows[k] decided by the scorer vectors[which[k]]."""
    for k in range(rows.shape[0]):
        actions[k] = choose(row_of(batch, rows[k]), rule, vectors[which[k]], hidden, columns)
