"""The safety net: a task falls back to uninterruptible capacity while its deadline can still be met.

A policy may gamble with spot capacity while there is time to fall back. When that time is up (the latest
start on on-demand or owned capacity, less a margin for launches and estimates), the task goes to the cluster
of that kind that ends it first, or stays if it is on one. A deadline that nothing can meet is not shown to
policies, so that no money is spent on it. Streams are left alone: each of their batches has a deadline of its
own, and what one of them costs must not put all others on demand.

Source of the idea: the safety net of "Can't Be Late" (NSDI'24), there for one job and one zone.
"""

from __future__ import annotations

from numba import njit

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.guards.rules import Facts, GuardRules, budgets, gain_test
from spotweave.envs.simulation.snapshot import Category, FloatArray, MaskArray


@linked()
def fallback(clusters: FloatArray, pairs: FloatArray, mask: MaskArray) -> int:
    """The uninterruptible cluster on which the task ends first, in time; C if there is none.

    Args:
        clusters: (C, N_CLUSTER_FIELDS) of an observation.
        pairs: (C, N_PAIR_FIELDS) of the task.
        mask: (C + 1,) of the task.
    """
    n_clusters = clusters.shape[0]
    best, best_s, best_usd, best_here = int(n_clusters), 0.0, 0.0, False
    for c in range(n_clusters):
        here = pairs[c, col.HERE] > 0.0
        if clusters[c, col.IS_SPOT] > 0.0 or pairs[c, col.FINISH_S] > pairs[c, col.DEADLINE_S]:
            continue
        if not here and (mask[c] == 0 or pairs[c, col.FITS] == 0.0):
            continue
        finish_s, usd_hour = pairs[c, col.FINISH_S], clusters[c, col.PRICE_USD_HOUR]
        better = finish_s < best_s or (finish_s == best_s and usd_hour < best_usd)
        if best == n_clusters or (here and not best_here) or (here == best_here and better):
            best, best_s, best_usd, best_here = c, finish_s, usd_hour, here
    return best


@njit(cache=True, error_model="numpy")
def spare_s(allowed_s: float, needed_s: float, rules: GuardRules) -> float:
    """Seconds until a task that needs `needed_s` on its fallback must go there; <= 0: now."""
    return float(allowed_s - needed_s * (1.0 + rules.margin_share) - rules.margin_s)


@njit(cache=True, error_model="numpy")
def likely_to_end(cluster: FloatArray, left_s: float, rules: GuardRules) -> bool:
    """Whether a task on spot capacity will hardly be interrupted in the `left_s` seconds until it ends.

    To move it would lose work and pay for a second start, for a risk of a few percent. Spells have heavy
    tails: the longer one has lasted, the longer it is expected to go on.

    Args:
        cluster: (N_CLUSTER_FIELDS,) of the place where the task runs.
        left_s: until it ends there.
        rules: how strict guards are.
    """
    expected_s = max(cluster[col.MEAN_UP_S], cluster[col.SPELL_S])
    return bool(cluster[col.AVAILABLE] > 0.0 and left_s <= rules.spot_risk * expected_s)


@njit(cache=True, error_model="numpy")
def safety_net(
    clusters: FloatArray, job: FloatArray, pairs: FloatArray, mask: MaskArray, place: int, rules: GuardRules
) -> int:
    """The place that a choice becomes: itself, or the fallback once there is no more time to gamble.

    A choice of uninterruptible capacity stands, as does "none" for a task that runs there.
    """
    n_clusters = clusters.shape[0]
    if rules.safety_net == 0 or job[col.HAS_DEADLINE] == 0.0 or job[col.CATEGORY] == Category.STREAMING.value:
        return place
    if place < n_clusters:
        if clusters[place, col.IS_SPOT] == 0.0:
            return place
    elif job[col.RUNNING] > 0.0:
        for c in range(n_clusters):
            if pairs[c, col.HERE] > 0.0 and clusters[c, col.IS_SPOT] == 0.0:
                return place
    net = int(fallback(clusters, pairs, mask))
    if net == n_clusters or spare_s(pairs[net, col.DEADLINE_S], pairs[net, col.FINISH_S], rules) > 0.0:
        return place
    return net


@njit(cache=True, error_model="numpy")
def soonest_s(clusters: FloatArray, pairs: FloatArray) -> float:
    """Seconds until the task's execution ends where that is soonest, were everything free; -1: nowhere.

    Needs base columns only.
    """
    soonest = -1.0
    for c in range(clusters.shape[0]):
        finish_s = pairs[c, col.EXECUTION_S]
        if pairs[c, col.HERE] == 0.0:
            if pairs[c, col.REQUEST] > clusters[c, col.CAPACITY_MAX]:
                continue
            finish_s += clusters[c, col.LAUNCH_S] + pairs[c, col.TRANSFER_S]
        if soonest < 0.0 or finish_s < soonest:
            soonest = finish_s
    return float(soonest)


@njit(cache=True, error_model="numpy")
def hide_lost_deadline(clusters: FloatArray, job: FloatArray, pairs: FloatArray, rules: GuardRules) -> bool:
    """Show a task whose deadline nothing can meet any more as one without, in place; whether it was."""
    if rules.safety_net == 0 or job[col.HAS_DEADLINE] == 0.0 or job[col.CATEGORY] == Category.STREAMING.value:
        return False
    soonest = soonest_s(clusters, pairs)
    if soonest < 0.0 or soonest <= pairs[0, col.DEADLINE_S]:
        return False
    job[col.HAS_DEADLINE] = 0.0
    job[col.SLACK_S] = 0.0
    if job[col.CATEGORY] == Category.TIME_CRITICAL.value:
        job[col.CATEGORY] = Category.GENERAL.value
    for c in range(clusters.shape[0]):
        pairs[c, col.DEADLINE_S] = 0.0
    return True


# All guards, in their order.


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
    caught = safety_net(clusters, job, pairs, mask, place, rules)
    if caught == place:
        caught = gain_test(clusters, job, pairs, place, facts, rules)
    caught = budgets(clusters.shape[0], caught, facts)
    if caught < clusters.shape[0] and job[col.RUNNING] > 0.0 and pairs[caught, col.HERE] > 0.0:
        return int(clusters.shape[0])  # it is there
    return caught
