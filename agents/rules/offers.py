"""What the market rules share: which offers may be used, the cheapest of them, and how urgent a job is.

"Opportunistic" offers are spot capacity and owned clusters: cheap while they last. "Safe" offers are the ones
that no provider interrupts: on demand, and owned clusters. Owned clusters may queue, so they count as
opportunistic only where the job fits at once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from envs.simulation import columns as col
from envs.simulation.snapshot import Category, FloatArray, MaskArray

OPPORTUNISTIC = 1
SAFE = 2

_ANY_TIER = 3


@njit(cache=True, error_model="numpy")
def is_kind(job: int, cluster: int, kind: int, clusters: FloatArray, pairs: FloatArray) -> bool:
    """Whether the cluster is an opportunistic offer that the job fits in, or a safe one."""
    spot = clusters[cluster, col.IS_SPOT] != 0.0
    if kind == OPPORTUNISTIC:
        owned = clusters[cluster, col.PROVIDER] == 0.0
        return bool((spot or owned) and pairs[job, cluster, col.FITS] != 0.0)
    return not spot


@njit(cache=True, error_model="numpy")
def cheapest_offer(job: int, kind: int, clusters: FloatArray, pairs: FloatArray, mask: MaskArray) -> int:
    """Valid offer of a kind with the smallest COST_USD (price of now * time + egress), or -1.

    Offers on which the job fits and can meet its deadline come before those where it fits, and these before
    those where it must queue.
    """
    n_clusters = clusters.shape[0]
    base = job * (n_clusters + 1)
    best = -1
    best_tier = _ANY_TIER
    best_cost = np.inf
    for cluster in range(n_clusters):
        if mask[base + cluster] == 0 or not is_kind(job, cluster, kind, clusters, pairs):
            continue
        tier = 0 if pairs[job, cluster, col.IMPROPER] == 0.0 else 1
        if pairs[job, cluster, col.FITS] == 0.0:
            tier = 2
        cost = float(pairs[job, cluster, col.COST_USD])
        if tier < best_tier or (tier == best_tier and cost < best_cost):
            best = cluster
            best_tier = tier
            best_cost = cost
    return best


@njit(cache=True, error_model="numpy")
def any_offer(job: int, clusters: FloatArray, pairs: FloatArray, mask: MaskArray) -> int:
    """The cheapest valid offer of either kind, safe first, or -1: for when waiting is not allowed."""
    offer = cheapest_offer(job, SAFE, clusters, pairs, mask)
    if offer >= 0:
        return offer
    n_clusters = clusters.shape[0]
    best_cost = np.inf
    for cluster in range(n_clusters):
        valid = mask[job * (n_clusters + 1) + cluster] != 0
        if valid and (offer < 0 or pairs[job, cluster, col.COST_USD] < best_cost):
            offer = cluster
            best_cost = float(pairs[job, cluster, col.COST_USD])
    return offer


@njit(cache=True, error_model="numpy")
def no_dearer(job: int, spot: int, safe: int, pairs: FloatArray) -> int:
    """The spot offer, unless the safe one costs no more (egress included) and takes the job at once."""
    if spot < 0 or safe < 0 or pairs[job, safe, col.FITS] == 0.0:
        return spot
    return safe if pairs[job, safe, col.COST_USD] <= pairs[job, spot, col.COST_USD] else spot


@njit(cache=True, error_model="numpy")
def place_of(job: int, pairs: FloatArray) -> int:
    """The cluster on which the job runs or hibernates, or -1."""
    for cluster in range(pairs.shape[1]):
        if pairs[job, cluster, col.HERE] != 0.0:
            return cluster
    return -1


@njit(cache=True, error_model="numpy")
def changeover_s(job: int, cluster: int, pairs: FloatArray) -> float:
    """Seconds from the decision until work begins there: the changeover delay d of "Can't Be Late"."""
    return float(pairs[job, cluster, col.FINISH_S] - pairs[job, cluster, col.EXECUTION_S])


@njit(cache=True, error_model="numpy")
def is_pressed(
    job: int, safe: int, spot: int, changeovers: float, jobs: FloatArray, pairs: FloatArray
) -> bool:
    """Whether the job must go to a safe offer now, because another interruption would make it late.

    That is the safety net of "Can't Be Late" (NSDI'24), R(t) < C(t) + 2d, plus the work that an interruption
    can undo here (one checkpoint interval). A one-shot job that no safe offer can save any more is not
    pressed: its deadline is lost and money is all that remains. A streaming job has a deadline per batch, and
    an interruption costs it some batches, not all: it is pressed only where there is no spot offer.

    Args:
        job: row of the job.
        safe: the safe offer that would be used; -1 means there is none.
        spot: the opportunistic offer that would be used; -1 means there is none.
        changeovers: how many changeover delays to keep in hand (2 in the paper).
        jobs: (J, N_JOB_FIELDS).
        pairs: (J, C, N_PAIR_FIELDS).
    """
    if safe < 0 or jobs[job, col.HAS_DEADLINE] == 0.0:
        return False
    slack = jobs[job, col.SLACK_S]
    if jobs[job, col.CATEGORY] == Category.STREAMING.value:
        if spot >= 0:
            return False
    elif slack < pairs[job, safe, col.FINISH_S]:
        return False
    execution = pairs[job, safe, col.EXECUTION_S]
    undone = min(execution, jobs[job, col.CHECKPOINT_INTERVAL_S])
    return bool(slack < execution + changeovers * changeover_s(job, safe, pairs) + undone)
