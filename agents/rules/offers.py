"""What the market rules share: which offers may be used, the cheapest of them, and how urgent a job is.

"Opportunistic" offers are spot capacity and owned clusters: cheap while they last. "Safe" offers are the ones
that no provider interrupts: on demand, and owned clusters. Owned clusters may queue, so they count as
opportunistic only where the job fits at once.
"""

from __future__ import annotations

import numpy as np

from spotweave.agents.rules.choice import flat_action, is_valid, stays
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.snapshot import Category, ObservationArrays

OPPORTUNISTIC = 1
SAFE = 2

_ANY_TIER = 3


@inner
def is_kind(obs: ObservationArrays, job: int, cluster: int, kind: int) -> bool:
    """Whether the cluster is an opportunistic offer that the job fits in, or a safe one."""
    spot = obs.clusters[cluster, col.IS_SPOT] != 0.0
    if kind == OPPORTUNISTIC:
        owned = obs.clusters[cluster, col.PROVIDER] == 0.0
        return bool((spot or owned) and obs.pairs[job, cluster, col.FITS] != 0.0)
    return not spot


@inner
def cheapest_offer(obs: ObservationArrays, job: int, kind: int) -> int:
    """Valid offer of a kind with the smallest COST_USD (price of now * time + egress), or -1.

    Offers on which the job fits and can meet its deadline come before those where it fits, and these before
    those where it must queue.
    """
    n_clusters = obs.clusters.shape[0]
    best = -1
    best_tier = _ANY_TIER
    best_cost = np.inf
    for cluster in range(n_clusters):
        if not is_valid(obs, job, cluster) or not is_kind(obs, job, cluster, kind):
            continue
        tier = 0 if obs.pairs[job, cluster, col.IMPROPER] == 0.0 else 1
        if obs.pairs[job, cluster, col.FITS] == 0.0:
            tier = 2
        cost = float(obs.pairs[job, cluster, col.COST_USD])
        if tier < best_tier or (tier == best_tier and cost < best_cost):
            best = cluster
            best_tier = tier
            best_cost = cost
    return best


@inner
def any_offer(obs: ObservationArrays, job: int) -> int:
    """The cheapest valid offer of either kind, safe first, or -1: for when waiting is not allowed."""
    offer = cheapest_offer(obs, job, SAFE)
    if offer >= 0:
        return offer
    n_clusters = obs.clusters.shape[0]
    best_cost = np.inf
    for cluster in range(n_clusters):
        if is_valid(obs, job, cluster) and (offer < 0 or obs.pairs[job, cluster, col.COST_USD] < best_cost):
            offer = cluster
            best_cost = float(obs.pairs[job, cluster, col.COST_USD])
    return offer


@inner
def no_dearer(obs: ObservationArrays, job: int, spot: int, safe: int) -> int:
    """The spot offer, unless the safe one costs no more (egress included) and takes the job at once."""
    if spot < 0 or safe < 0 or obs.pairs[job, safe, col.FITS] == 0.0:
        return spot
    return safe if obs.pairs[job, safe, col.COST_USD] <= obs.pairs[job, spot, col.COST_USD] else spot


@inner
def place_of(obs: ObservationArrays, job: int) -> int:
    """The cluster on which the job runs or hibernates, or -1."""
    for cluster in range(obs.pairs.shape[1]):
        if obs.pairs[job, cluster, col.HERE] != 0.0:
            return cluster
    return -1


@inner
def changeover_s(obs: ObservationArrays, job: int, cluster: int) -> float:
    """Seconds from the decision until work begins there: the changeover delay d of "Can't Be Late"."""
    return float(obs.pairs[job, cluster, col.FINISH_S] - obs.pairs[job, cluster, col.EXECUTION_S])


@inner
def is_pressed(obs: ObservationArrays, job: int, safe: int, spot: int, changeovers: float) -> bool:
    """Whether the job must go to a safe offer now, because another interruption would make it late.

    That is the safety net of "Can't Be Late" (NSDI'24), R(t) < C(t) + 2d, plus the work that an interruption
    can undo here (one checkpoint interval). A one-shot job that no safe offer can save any more is not
    pressed: its deadline is lost and money is all that remains. A streaming job has a deadline per batch, and
    an interruption costs it some batches, not all: it is pressed only where there is no spot offer.

    Args:
        obs: one observation.
        job: row of the job.
        safe: the safe offer that would be used; -1 means there is none.
        spot: the opportunistic offer that would be used; -1 means there is none.
        changeovers: how many changeover delays to keep in hand (2 in the paper).
    """
    if safe < 0 or obs.jobs[job, col.HAS_DEADLINE] == 0.0:
        return False
    slack = obs.jobs[job, col.SLACK_S]
    if obs.jobs[job, col.CATEGORY] == Category.STREAMING.value:
        if spot >= 0:
            return False
    elif slack < obs.pairs[job, safe, col.FINISH_S]:
        return False
    execution = obs.pairs[job, safe, col.EXECUTION_S]
    undone = min(execution, obs.jobs[job, col.CHECKPOINT_INTERVAL_S])
    return bool(slack < execution + changeovers * changeover_s(obs, job, safe) + undone)


@inner
def spot_while_it_lasts(obs: ObservationArrays, job: int, spot: int, changeovers: float) -> int:
    """The action of a job that prefers `spot` until it is pressed, and then takes the cheapest safe offer.

    A job on spot capacity is moved to a safe offer while that still meets its deadline; otherwise a job that
    runs stays. Without an offer it waits, if it may.

    Args:
        obs: one observation.
        job: row of the job.
        spot: the spot offer that it would take; -1 means there is none.
        changeovers: see `is_pressed`.
    """
    safe = cheapest_offer(obs, job, SAFE)
    pressed = is_pressed(obs, job, safe, spot, changeovers)
    if stays(obs, job):
        here = place_of(obs, job)
        risky = here >= 0 and obs.clusters[here, col.IS_SPOT] != 0.0
        return int(flat_action(obs, job, safe if risky and pressed else -1))
    offer = safe if pressed else no_dearer(obs, job, spot, safe)
    if offer < 0 and not is_valid(obs, job, -1):
        offer = any_offer(obs, job)
    return int(flat_action(obs, job, offer))
