"""One decision of `mtdqn`, compiled: the job of the guide's order, its values everywhere, the best place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.mtdqn.columns import N_COMMITTED_COLUMNS, N_JOB_COLUMNS
from agents.mtdqn.describe import count_jobs, describe_clusters, describe_job
from agents.mtdqn.forward import HEADS, N_OWN, Sizes, evaluate, n_columns
from agents.rules.choice import NO_ACTION, largest_job, row_of, smallest_job
from agents.rules.committed import committed_cost
from agents.rules.compiled import compiled
from agents.rules.tuned import tuned_cost
from envs.simulation import columns as col
from envs.simulation.snapshot import ObservationArrays

GREEDY, GUIDED, RANDOM = 0, 1, 2
"""What the alternative to the largest value is (Liu 2022, eq. 4.3): none, the guide's choice, or drawn."""
NEAR = 2.0
"""What is drawn at random is at most this worse than the best, in missed deadlines."""
NEED_UNIT = 20_000.0
"""Executor-slices that count as a need of 1."""


class Label(NamedTuple):
    """What is kept of n decisions; of two choices each: the alternative (if any) and the greedy one.

    Attributes:
        columns: (n, 2, n_columns) float32.
        known: (n, 2, 2) misses and delay known without waiting, as values.
        needs: (n, 2) float32.
        tried: (n,) whether there was an alternative, between which and the greedy choice a coin decided.
        taken: (n,) whether the alternative was taken.
    """

    columns: NDArray[np.float32]
    known: NDArray[np.float32]
    needs: NDArray[np.float32]
    tried: NDArray[np.bool_]
    taken: NDArray[np.bool_]


def empty_label(n: int, sizes: Sizes) -> Label:
    """Room for n decisions."""
    return Label(
        np.zeros((n, 2, n_columns(sizes)), np.float32),
        np.zeros((n, 2, N_OWN), np.float32),
        np.zeros((n, 2), np.float32),
        np.zeros(n, np.bool_),
        np.zeros(n, np.bool_),
    )


@compiled
def next_job(obs: ObservationArrays, sizes: Sizes) -> int:
    """The job that the guide would decide next; -1 if none is open."""
    return largest_job(obs) if sizes.places == N_COMMITTED_COLUMNS else smallest_job(obs)


@njit(cache=True, error_model="numpy")
def values_of(
    obs: ObservationArrays,
    job: int,
    vector: NDArray[np.float32],
    sizes: Sizes,
    columns: NDArray[np.float32],
    known: NDArray[np.float32],
    needs: NDArray[np.float32],
    values: NDArray[np.float32],
) -> None:
    """Fill what is given of a job on each of the C places; values (C, HEADS) include what is known.

    Without weights (a vector of length 0) the values are what is known.
    """
    n_clusters = obs.clusters.shape[0]
    places = np.empty((n_clusters, sizes.places), np.float32)
    seen = np.empty(N_JOB_COLUMNS, np.float32)
    describe_clusters(obs, places)
    describe_job(obs, job, count_jobs(obs), places, seen)
    p = sizes.places
    mean = np.zeros(p, np.float32)
    for c in range(n_clusters):
        mean += places[c] / np.float32(n_clusters)
    executions = obs.jobs[job, col.EXECUTIONS]
    for c in range(n_clusters):
        pair = obs.pairs[job, c]
        columns[c, :p] = places[c]
        columns[c, p : 2 * p] = mean
        columns[c, 2 * p : 2 * p + N_JOB_COLUMNS] = seen
        columns[c, 2 * p + N_JOB_COLUMNS :] = obs.occupation[c]
        known[c, 0] = -pair[col.IMPROPER] * executions
        known[c, 1] = 1.0 - pair[col.EXECUTION_RATIO]
        needs[c] = pair[col.REQUEST] * pair[col.EXECUTION_S] * executions / np.float32(NEED_UNIT)
    if len(vector) > 0:
        evaluate(vector, sizes, columns, needs, values)
    else:
        values[:] = 0.0
    values[:, :N_OWN] += known


@njit(cache=True, error_model="numpy")
def _guided(obs: ObservationArrays, job: int, rule: NDArray[np.float64], committed: bool) -> int:
    """Where the guide puts the job; -1 if no place is valid."""
    n_clusters = obs.clusters.shape[0]
    best, least = -1, np.inf
    for c in range(n_clusters):
        if obs.mask[job * (n_clusters + 1) + c] == 0:
            continue
        cost = committed_cost(obs, job, c, rule) if committed else tuned_cost(obs, job, c, rule)
        if best < 0 or cost < least:
            best, least = c, cost
    return best


@njit(cache=True, error_model="numpy")
def _best(obs: ObservationArrays, job: int, worth: NDArray[np.float32], but: int) -> int:
    n_clusters = obs.clusters.shape[0]
    best = -1
    for c in range(n_clusters):
        if c != but and obs.mask[job * (n_clusters + 1) + c] != 0 and (best < 0 or worth[c] > worth[best]):
            best = c
    return best


@njit(cache=True, error_model="numpy")
def _drawn(obs: ObservationArrays, job: int, worth: NDArray[np.float32], draw: float) -> int:
    """One of the places that are nearly as good as the best and proper, or the second best."""
    n_clusters = obs.clusters.shape[0]
    best = _best(obs, job, worth, -1)
    second = _best(obs, job, worth, best)
    candidates = np.empty(n_clusters, np.int64)
    n = 0
    for c in range(n_clusters):
        if obs.mask[job * (n_clusters + 1) + c] == 0:
            continue
        near = obs.pairs[job, c, col.IMPROPER] == 0.0 and worth[c] >= worth[best] - NEAR
        if near or c == second:
            candidates[n] = c
            n += 1
    return int(candidates[int(draw * n)]) if n > 0 else best


@njit(cache=True, error_model="numpy")
def decide(
    obs: ObservationArrays,
    rule: NDArray[np.float64],
    vector: NDArray[np.float32],
    sizes: Sizes,
    weights: NDArray[np.float32],
    follow: bool,
    how: int,
    draw: float,
    take: bool,
    label: Label,
    row: int,
) -> int:
    """The flat action for one observation; NO_ACTION if nothing is valid. Row `row` of `label` is filled.

    Args:
        obs: one observation.
        rule: parameters of the guide.
        vector: weights of the network.
        sizes: of the network.
        weights: (HEADS,) of the values.
        follow: the guide's choice counts as the greedy one.
        how: what is the alternative to the greedy choice: GREEDY (none), GUIDED or RANDOM.
        draw: in [0, 1), for RANDOM.
        take: the alternative.
        label: where the decision is kept.
        row: of the label; negative: nothing is kept.
    """
    n_clusters = int(obs.clusters.shape[0])
    committed = sizes.places == N_COMMITTED_COLUMNS
    job = next_job(obs, sizes)
    if job < 0:
        return NO_ACTION
    columns = np.empty((n_clusters, n_columns(sizes)), np.float32)
    known = np.empty((n_clusters, N_OWN), np.float32)
    needs = np.empty(n_clusters, np.float32)
    values = np.empty((n_clusters, HEADS), np.float32)
    guided = _guided(obs, job, rule, committed) if follow or how == GUIDED else -1
    first = int(job * (n_clusters + 1))
    if how == GREEDY and follow and row < 0:
        return first + (guided if guided >= 0 else n_clusters)
    values_of(obs, job, vector, sizes, columns, known, needs, values)
    worth = values[:, 0] * weights[0] + values[:, 1] * weights[1] + values[:, 2] * weights[2]
    greedy = guided if follow else _best(obs, job, worth, -1)
    if greedy < 0:
        return first + n_clusters
    other = greedy
    if how == GUIDED:
        other = guided
    elif how == RANDOM:
        other = _drawn(obs, job, worth, draw)
    if row >= 0:
        label.tried[row] = other != greedy
        label.taken[row] = other != greedy and take
        for k in range(2):
            c = other if k == 0 else greedy
            label.columns[row, k] = columns[c]
            label.known[row, k] = known[c]
            label.needs[row, k] = needs[c]
    return first + int(other if take else greedy)


@njit(cache=True, error_model="numpy", nogil=True)
def decide_rows(
    batch: ObservationArrays,
    rows: NDArray[np.int64],
    rule: NDArray[np.float64],
    vector: NDArray[np.float32],
    sizes: Sizes,
    weights: NDArray[np.float32],
    follow: bool,
    how: NDArray[np.int64],
    draws: NDArray[np.float64],
    take: NDArray[np.bool_],
    label: Label,
    actions: NDArray[np.int64],
) -> None:
    """Fill actions (n,) for some rows of a batch, and the first n rows of `label` unless it is empty."""
    keeps = label.tried.shape[0] > 0
    for k in range(rows.shape[0]):
        obs = row_of(batch, rows[k])
        row = k if keeps else -1
        actions[k] = decide(obs, rule, vector, sizes, weights, follow, how[k], draws[k], take[k], label, row)
