"""Uniform Progress per job: Wu et al., "Can't Be Late" (NSDI'24), the single-zone policy.

It is applied to each job, with the cheapest available spot offer standing for "the zone". Its rules, with
expected progress ep(t) = t / (time from arrival to the deadline), actual progress cp(t), time left R(t), work
left C(t) and changeover delay d:

- thrifty: nothing runs once the work is done (here the job leaves the system);
- safety net: when R(t) < C(t) + 2d, on demand until the end;
- exploitation: a job on spot stays there until it is interrupted;
- taking risks: an idle job takes spot capacity whenever there is some;
- uniform progress: an idle job that is behind, cp(t) < ep(t), goes on demand if there is none;
- hysteresis: a job on demand stays there until cp(t) >= ep(t + 2d).

Streaming jobs have a deadline per batch and no overall progress: they count as behind while batches are due
and not finished, and the safety net holds for them only while there is no spot offer. Jobs without a deadline
are never behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, stays, urgent_job
from agents.rules.offers import (
    OPPORTUNISTIC,
    SAFE,
    any_offer,
    changeover_s,
    cheapest_offer,
    is_pressed,
    no_dearer,
    place_of,
)
from agents.rules.parameters import RuleParameters
from envs.simulation import columns as col
from envs.simulation.snapshot import Category, FloatArray, MaskArray


@dataclass(frozen=True)
class UniformProgressParameters(RuleParameters):
    """Constants of the paper.

    Attributes:
        changeovers: changeover delays kept in hand by the safety net and the hysteresis (2 in the paper).
    """

    changeovers: float = 2.0


@njit(cache=True, error_model="numpy")
def is_behind(job: int, ahead_s: float, jobs: FloatArray) -> bool:
    """Whether cp(t) < ep(t + ahead_s)."""
    if jobs[job, col.HAS_DEADLINE] == 0.0:
        return False
    if jobs[job, col.CATEGORY] == Category.STREAMING.value:
        return bool(jobs[job, col.BACKLOG] > 0.0)
    total = jobs[job, col.AGE_S] + jobs[job, col.SLACK_S]
    if total <= 0.0:
        return True
    return bool(jobs[job, col.PROGRESS] < (jobs[job, col.AGE_S] + ahead_s) / total)


@njit(cache=True, error_model="numpy")
def choose(
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    memory: NDArray[np.float64],
    parameters: NDArray[np.float64],
) -> int:
    """The most urgent job, by the rules above; "none" leaves it waiting or where it runs."""
    n_clusters = clusters.shape[0]
    job = urgent_job(jobs, mask, n_clusters)
    if job < 0:
        return NO_ACTION
    none_valid = mask[job * (n_clusters + 1) + n_clusters] != 0
    safe = cheapest_offer(job, SAFE, clusters, pairs, mask)
    spot = cheapest_offer(job, OPPORTUNISTIC, clusters, pairs, mask)
    if stays(job, jobs, mask, n_clusters):
        here = place_of(job, pairs)
        if here < 0 or spot < 0 or clusters[here, col.IS_SPOT] != 0.0 or clusters[here, col.PROVIDER] == 0.0:
            return flat_action(job, -1, n_clusters)
        keep_s = parameters[0] * changeover_s(job, spot, pairs)
        saves = pairs[job, spot, col.COST_USD] < pairs[job, here, col.COST_USD]
        tight = is_pressed(job, spot, -1, parameters[0], jobs, pairs)
        move = saves and not tight and not is_behind(job, keep_s, jobs)
        return flat_action(job, spot if move else -1, n_clusters)
    offer = no_dearer(job, spot, safe, pairs)
    pressed = is_pressed(job, safe, spot, parameters[0], jobs, pairs)
    if pressed or (spot < 0 and is_behind(job, 0.0, jobs)):
        offer = safe
    if offer < 0 and not none_valid:
        offer = any_offer(job, clusters, pairs, mask)
    return flat_action(job, offer, n_clusters)
