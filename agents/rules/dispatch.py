"""One compiled entry to every rule, so that compiled rollouts can call a rule by its number."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.rules.cheapest import choose as choose_cheapest
from agents.rules.choice import NO_ACTION, keep_idle
from agents.rules.deadline_safe import choose as choose_deadline_safe
from agents.rules.eft import choose as choose_eft
from agents.rules.expected_cost import choose as choose_expected_cost
from agents.rules.ih_filter import choose as choose_ih_filter
from agents.rules.lf_e import choose as choose_lf_e
from agents.rules.lf_p import choose as choose_lf_p
from agents.rules.maf import choose as choose_maf
from agents.rules.on_demand import choose as choose_on_demand
from agents.rules.price_capacity import choose as choose_price_capacity
from agents.rules.random_choice import choose as choose_random
from agents.rules.round_robin import choose as choose_rr
from agents.rules.sf_e import choose as choose_sf_e
from agents.rules.sf_p import choose as choose_sf_p
from agents.rules.spot_fallback import choose as choose_spot_fallback
from agents.rules.tuned import choose as choose_tuned
from agents.rules.uniform_progress import choose as choose_uniform_progress
from envs.simulation.snapshot import FloatArray, MaskArray

RANDOM = 0
RR = 1
MAF = 2
SF_P = 3
LF_P = 4
SF_E = 5
LF_E = 6
EFT = 7
DEADLINE_SAFE = 8
TUNED = 9
IH_FILTER = 10
ON_DEMAND = 11
SPOT_FALLBACK = 12
UNIFORM_PROGRESS = 13
PRICE_CAPACITY = 14
CHEAPEST = 15
EXPECTED_COST = 16


@njit(cache=True, error_model="numpy")
def rule_action(
    rule_id: int,
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    memory: NDArray[np.float64],
    parameters: NDArray[np.float64],
) -> int:
    """What rule `rule_id` chooses (see `choose_by_id`)."""
    if rule_id == RANDOM:
        return choose_random(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == RR:
        return choose_rr(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == MAF:
        return choose_maf(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == SF_P:
        return choose_sf_p(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == LF_P:
        return choose_lf_p(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == SF_E:
        return choose_sf_e(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == LF_E:
        return choose_lf_e(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == EFT:
        return choose_eft(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == DEADLINE_SAFE:
        return choose_deadline_safe(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == TUNED:
        return choose_tuned(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == IH_FILTER:
        return choose_ih_filter(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == ON_DEMAND:
        return choose_on_demand(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == SPOT_FALLBACK:
        return choose_spot_fallback(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == UNIFORM_PROGRESS:
        return choose_uniform_progress(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == PRICE_CAPACITY:
        return choose_price_capacity(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == CHEAPEST:
        return choose_cheapest(clusters, occupation, jobs, pairs, mask, memory, parameters)
    if rule_id == EXPECTED_COST:
        return choose_expected_cost(clusters, occupation, jobs, pairs, mask, memory, parameters)
    return NO_ACTION


@njit(cache=True, error_model="numpy")
def choose_by_id(
    rule_id: int,
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    memory: NDArray[np.float64],
    parameters: NDArray[np.float64],
) -> int:
    """The flat action of rule `rule_id` for one observation; NO_ACTION if nothing is valid or no such rule.

    A federated client that is idle between two rounds keeps its instance, unless the rule knows of rounds
    ("expected cost") or of nothing ("random").

    Args:
        rule_id: one of the constants of this module.
        clusters: (C, N_CLUSTER_FIELDS) float32.
        occupation: (C, HISTORY_STEPS) float32.
        jobs: (J, N_JOB_FIELDS) float32.
        pairs: (J, C, N_PAIR_FIELDS) float32, derived columns filled.
        mask: (J * (C + 1),) int8.
        memory: (MEMORY_SIZE,) float64 of the lane, started by `begin_memory`; changed in place.
        parameters: (P,) float64, the rule's `RuleParameters.vector()`.
    """
    action = rule_action(rule_id, clusters, occupation, jobs, pairs, mask, memory, parameters)
    if action == NO_ACTION or rule_id in (RANDOM, EXPECTED_COST):
        return action
    return keep_idle(action, jobs, pairs, mask)


@njit(cache=True, error_model="numpy", nogil=True)
def choose_batch(
    rule_id: int,
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    rows: NDArray[np.int64],
    lanes: NDArray[np.int64],
    memory: NDArray[np.float64],
    parameters: NDArray[np.float64],
    actions: NDArray[np.int64],
) -> None:
    """Fill `actions` (n,) for the observations in rows[k]; lane lanes[k] remembers."""
    for k in range(lanes.shape[0]):
        r = rows[k]
        actions[k] = choose_by_id(
            rule_id, clusters[r], occupation[r], jobs[r], pairs[r], mask[r], memory[lanes[k]], parameters
        )
