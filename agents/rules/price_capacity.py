"""Price-capacity: deep spot pools first, in the manner of EC2's `price-capacity-optimized` allocation.

EC2 picks the pools that are least likely to be interrupted and takes the cheapest of these; here the offers
whose cost is close to the cheapest compete by depth, as far as an observation shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotweave.agents.rules.choice import NO_ACTION, is_valid, urgent_job
from spotweave.agents.rules.offers import OPPORTUNISTIC, cheapest_offer, is_kind, spot_while_it_lasts
from spotweave.agents.rules.registry import MARKET, Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@dataclass(frozen=True)
class PriceCapacityParameters(RuleParameters):
    """How far depth may cost money, and when to give up on spot."""

    changeovers: float = 2.0  # changeover delays that must remain beyond the work left (2 in "Can't Be Late")
    # an offer competes if its cost is at most (1 + tolerance) times the cheapest one's
    tolerance: float = 0.25
    typical_up_s: float = 3600.0  # mean up-spell that counts half


@inner
def pool_depth(obs: ObservationArrays, job: int, cluster: int, typical_up_s: float) -> float:
    """How unlikely the offer is to run dry, in 0..1; 2 for an owned cluster.

    The product of the share of time it was up, of its up-spells (saturating) and of the room that the job
    would leave in it.
    """
    if obs.clusters[cluster, col.IS_SPOT] == 0.0:
        return 2.0
    mean_up = obs.clusters[cluster, col.MEAN_UP_S]
    spells = mean_up / (mean_up + typical_up_s) if mean_up > 0.0 else 0.5
    free = max(float(obs.pairs[job, cluster, col.FREE]), 1.0)
    room = 1.0 - 0.5 * min(1.0, obs.pairs[job, cluster, col.REQUEST] / free)
    return float(obs.clusters[cluster, col.UP_RATIO] * spells * room)


@inner
def deepest_offer(obs: ObservationArrays, job: int, parameters: Floats) -> int:
    """The deepest opportunistic offer among those that cost nearly as little as the cheapest, or -1."""
    cheapest = cheapest_offer(obs, job, OPPORTUNISTIC)
    if cheapest < 0:
        return -1
    limit = (1.0 + parameters[1]) * obs.pairs[job, cheapest, col.COST_USD]
    best = cheapest
    best_depth = pool_depth(obs, job, cheapest, parameters[2])
    for cluster in range(obs.clusters.shape[0]):
        if not is_valid(obs, job, cluster):
            continue
        if not is_kind(obs, job, cluster, OPPORTUNISTIC):
            continue
        same_deadline = obs.pairs[job, cluster, col.IMPROPER] <= obs.pairs[job, cheapest, col.IMPROPER]
        depth = pool_depth(obs, job, cluster, parameters[2])
        if same_deadline and obs.pairs[job, cluster, col.COST_USD] <= limit and depth > best_depth:
            best = cluster
            best_depth = depth
    return best


@inner
def choose(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    """The most urgent job takes a deep pool among the cheapest spot offers; without slack, a safe offer."""
    job = urgent_job(obs)
    if job < 0:
        return NO_ACTION
    spot = deepest_offer(obs, job, parameters)
    return spot_while_it_lasts(obs, job, spot, parameters[0])


register(
    Rule(
        "price_capacity",
        "Price-capacity",
        choose,
        "EC2 allocation strategy price-capacity-optimized",
        PriceCapacityParameters(),
        worlds=MARKET,
    )
)
