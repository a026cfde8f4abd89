"""What bounds every policy, simulated and live: a safety net for deadlines, and gains that moves need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import Category, FloatArray, MaskArray
from spotweave.envs.simulation.world import at_least

# How strict the guards are, and what they must know that a snapshot does not show.


class GuardRules(NamedTuple):
    """`GuardsConfig` for compiled code. Flags are 0 or 1."""

    safety_net: int
    gain_test: int
    margin_s: float
    margin_share: float
    spot_risk: float
    move_margin: float
    hint_risk: float
    price_memory_s: float


_NUMBERS = GuardRules._fields[2:]


@dataclass
class GuardsConfig:
    """Which guards are on and how strict they are."""

    safety_net: bool = True  # whether a deadline that on-demand or owned capacity could still meet is met
    gain_test: bool = True  # whether a move of a running task must pay for itself
    margin_s: float = 60.0  # the net acts this many seconds before the latest start,
    margin_share: float = 0.1  # and this share of launch, set-up and work earlier
    # a task that runs on spot capacity is left there past that start while the chance that it is interrupted
    # before it ends is at most this; 0 moves every one of them in time
    spot_risk: float = 0.1
    move_margin: float = 0.2  # what a move gains must exceed its cost by this share of it
    # share of a move's cost that counts as due anyway once the provider advises to leave
    hint_risk: float = 0.5
    price_memory_s: float = 6 * 3600.0  # a price counts as far as its mean over this time confirms it

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        at_least(self, "guards", 0, *_NUMBERS)

    def rules(self) -> GuardRules:
        """For compiled code."""
        numbers = (float(getattr(self, name)) for name in _NUMBERS)
        return GuardRules(int(self.safety_net), int(self.gain_test), *numbers)


class Facts(NamedTuple):
    """What guards must know about one task beyond its rows in the snapshot."""

    mean_usd_hour: Floats  # (C,) mean price of an executor over the latest `price_memory_s`
    minimum_s: Floats  # (C,) seconds that an instance is billed for at least
    start_usd: Floats  # (C,) the least that a start there costs
    left_usd: float  # what budgets outside the snapshot still pay; infinite without one
    unsaved: float  # of a running task: share of its execution that a move would lose
    # of a running task: seconds of its instances' billing minimum that are still to come
    minimum_left_s: float
    hinted: float  # 1.0 if the provider advises to leave, or has announced the end of some of its instances


@njit(cache=True)
def no_facts(n_clusters: int) -> Facts:
    """Facts of a task that does not run, without a budget."""
    return Facts(np.zeros(n_clusters), np.zeros(n_clusters), np.zeros(n_clusters), np.inf, 0.0, 0.0, 0.0)


# Whether moving a running task is worth it: what it gains against what the switch itself costs.
#
# The gain is what the rest of the work costs less elsewhere. A price counts only as far as it has lasted:
# the task's own place at the lower of its price of now and its mean of the latest hours, the other place at
# the higher one. So nothing runs after a price that swings. What spot capacity risks is the policy's to
# weigh.
#
# The switch costs, before any of that is gained,
# - launch, transfer and set-up, and the work that was not saved, at the new price;
# - the old place while the new one is launched, as the task stays until that is ready;
# - what is left of the old instances' billing minimum then, and of the new ones' where the rest is short.
#
# A move that saves a deadline need not gain anything.


@njit(cache=True, error_model="numpy")
def reconsidered(spot: bool, queues: bool, streams: bool) -> bool:
    """Whether a policy is asked now and then about a task that runs on such a cluster.

    An owned cluster costs nothing. A stream may go between two batches; what else runs on spot capacity was
    put there for its price and ends by itself.
    """
    return not queues and (streams or not spot)


@njit(cache=True, error_model="numpy")
def move_usd(
    clusters: FloatArray, job: FloatArray, pairs: FloatArray, here: int, there: int, facts: Facts
) -> tuple[float, float]:
    """(USD that the rest of the work costs less there, USD that the switch costs)."""
    low = min(clusters[here, col.PRICE_USD_HOUR], facts.mean_usd_hour[here])
    high = max(clusters[there, col.PRICE_USD_HOUR], facts.mean_usd_hour[there])
    old_usd_s = low * pairs[here, col.REQUEST] / 3600.0
    new_usd_s = high * pairs[there, col.REQUEST] / 3600.0
    left_here_s, left_there_s = pairs[here, col.EXECUTION_S], pairs[there, col.EXECUTION_S]
    if job[col.CATEGORY] == Category.STREAMING.value:
        left_here_s = left_there_s = job[col.DURATION_S]
    gain = old_usd_s * left_here_s - new_usd_s * left_there_s - pairs[there, col.EGRESS_USD]
    launch_s = clusters[there, col.LAUNCH_S]
    start_s = launch_s + pairs[there, col.TRANSFER_S]
    done = job[col.PROGRESS]
    redo_s = facts.unsaved * left_there_s / (1.0 - done) if done < 1.0 else 0.0
    short_s = max(0.0, facts.minimum_s[there] - start_s - redo_s - left_there_s)
    kept_s = max(launch_s, facts.minimum_left_s)
    return float(gain), float(new_usd_s * (start_s + redo_s + short_s) + old_usd_s * kept_s)


@linked()
def gain_test(
    clusters: FloatArray, job: FloatArray, pairs: FloatArray, place: int, facts: Facts, rules: GuardRules
) -> int:
    """The place that a choice becomes: itself, or "none" (C) for a move that does not pay for itself."""
    n_clusters = clusters.shape[0]
    if rules.gain_test == 0 or job[col.RUNNING] == 0.0 or place == n_clusters:
        return place
    here = -1
    for c in range(n_clusters):
        if pairs[c, col.HERE] > 0.0:
            here = c
    if here < 0 or (pairs[here, col.IMPROPER] > 0.0 and pairs[place, col.IMPROPER] == 0.0):
        return place
    gain, cost = move_usd(clusters, job, pairs, here, place, facts)
    due = rules.hint_risk * cost if facts.hinted > 0.0 else 0.0
    return place if gain + due > (1.0 + rules.move_margin) * cost else n_clusters


# Whether budgets that a snapshot does not show, of a job or a whole deployment, pay for a start.


@linked()
def budgets(n_clusters: int, place: int, facts: Facts) -> int:
    """The place that a choice becomes: itself, or "none" (C) where budgets do not pay a start."""
    if place < n_clusters and facts.start_usd[place] > facts.left_usd:
        return n_clusters
    return place


# The safety net: a task falls back to uninterruptible capacity while its deadline can still be met.
#
# A policy may gamble with spot capacity while there is time to fall back. When that time is up (the latest
# start on on-demand or owned capacity, less a margin for launches and estimates), the task goes to the
# cluster of that kind that ends it first, or stays if it is on one. A deadline that nothing can meet is not
# shown to policies, so that no money is spent on it. Streams are left alone: each of their batches has a
# deadline of its own, and what one of them costs must not put all others on demand.
#
# Source of the idea: the safety net of "Can't Be Late" (NSDI'24), there for one job and one zone.


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
