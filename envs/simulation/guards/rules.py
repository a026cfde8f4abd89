"""How strict the guards are, and what they must know that a snapshot does not show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import Category, FloatArray
from spotweave.envs.simulation.world import at_least


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
