"""All guards, in their order."""

from __future__ import annotations

from numba import njit

from envs.simulation import columns as col
from envs.simulation.guards.budgets import budgets
from envs.simulation.guards.moves import gain_test
from envs.simulation.guards.rules import Facts, GuardRules
from envs.simulation.guards.safety import safety_net
from envs.simulation.snapshot import FloatArray, MaskArray


@njit(cache=True, error_model="numpy")
def guarded(
    clusters: FloatArray,
    job: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    place: int,
    facts: Facts,
    rules: GuardRules,
) -> int:
    """What a policy's choice for one task becomes.

    Args:
        clusters: (C, N_CLUSTER_FIELDS) of the observation that the policy saw.
        job: (N_JOB_FIELDS,) of the task.
        pairs: (C, N_PAIR_FIELDS) of the task.
        mask: (C + 1,) of the task.
        place: the policy's choice: a cluster, or C for "none for now".
        facts: about the task.
        rules: how strict guards are.

    Returns:
        The choice to follow, valid in `mask` if `place` is. What the net overrules need not gain anything.
    """
    caught = safety_net(clusters, job, pairs, mask, place, facts, rules)
    if caught == place:
        caught = gain_test(clusters, job, pairs, mask, place, facts, rules)
    caught = budgets(clusters, job, pairs, mask, caught, facts, rules)
    if caught < clusters.shape[0] and job[col.RUNNING] > 0.0 and pairs[caught, col.HERE] > 0.0:
        return int(clusters.shape[0])  # it is there
    return caught
