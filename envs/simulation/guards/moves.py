"""Whether moving a running task is worth it: what it gains against what the switch itself costs.

The gain is what the rest of the work costs less elsewhere. A price counts only as far as it has lasted: the
task's own place at the lower of its price of now and its mean of the latest hours, the other place at the
higher one. So nothing runs after a price that swings. What spot capacity risks is the policy's to weigh.

The switch costs, before any of that is gained,
- launch, transfer and set-up, and the work that was not saved, at the new price;
- the old place while the new one is launched, as the task stays until that is ready;
- what is left of the old instances' billing minimum then, and of the new ones' where the rest is short.

A move that saves a deadline need not gain anything.
"""

from __future__ import annotations

from numba import njit

from envs.simulation import columns as col
from envs.simulation.guards.rules import Facts, GuardRules
from envs.simulation.snapshot import Category, FloatArray, MaskArray


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


@njit(cache=True, error_model="numpy")
def gain_test(
    clusters: FloatArray,
    job: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    place: int,
    facts: Facts,
    rules: GuardRules,
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
