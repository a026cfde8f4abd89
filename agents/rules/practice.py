"""Common practice in markets: the cheapest zone, on demand only, greedy spot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.agents.rules.choice import NO_ACTION, flat_action, is_valid, stays, urgent_job
from spotweave.agents.rules.offers import OPPORTUNISTIC, SAFE, any_offer, cheapest_offer, spot_while_it_lasts
from spotweave.agents.rules.policy import scored
from spotweave.agents.rules.registry import MARKET, Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays

# Cheapest zone: the valid offer with the smallest cost at the price of now, whatever its risk.


@inner
def cheapest(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> tuple[float, float]:
    """The most urgent job goes to the offer with the smallest COST_USD among those that it fits in.

    Where it fits nowhere, the cheapest place to queue is taken.
    """
    fits = 1.0 if obs.pairs[job, cluster, col.FITS] != 0.0 else 0.0
    return fits, -float(obs.pairs[job, cluster, col.COST_USD])


register(
    Rule(
        "cheapest",
        "Cheapest zone",
        scored(urgent_job, cheapest, worst=(-np.inf, -np.inf)),
        "common practice",
        worlds=MARKET,
    )
)


# On-demand only: never use capacity that the provider may interrupt. The reference that spot savings are
# usually given against ("Can't Be Late", NSDI'24; Teylo 2021, Table 7.4).


@inner
def choose_on_demand(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    """The most urgent job goes to the cheapest safe offer: on demand, or an owned cluster with room."""
    job = urgent_job(obs)
    if job < 0:
        return NO_ACTION
    if stays(obs, job):
        return flat_action(obs, job, -1)
    offer = cheapest_offer(obs, job, SAFE)
    if offer < 0 and not is_valid(obs, job, -1):
        offer = any_offer(obs, job)
    return flat_action(obs, job, offer)


register(Rule("on_demand", "On-demand only", choose_on_demand, "common practice", worlds=MARKET))


# Greedy spot with an on-demand fallback: what "Can't Be Late" (NSDI'24) starts from.


@dataclass(frozen=True)
class SpotFallbackParameters(RuleParameters):
    """When greedy spot gives up on spot."""

    changeovers: float = 2.0  # changeover delays that must remain beyond the work left (2 in "Can't Be Late")


@inner
def choose_spot(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    """The most urgent job takes the cheapest spot offer; without slack for an interruption, a safe one.

    A job on spot capacity is moved to a safe offer while that still meets its deadline. If no spot offer is
    available, the job waits.
    """
    job = urgent_job(obs)
    if job < 0:
        return NO_ACTION
    spot = cheapest_offer(obs, job, OPPORTUNISTIC)
    return spot_while_it_lasts(obs, job, spot, parameters[0])


register(
    Rule(
        "spot_fallback",
        "Greedy spot",
        choose_spot,
        "Can't Be Late (NSDI'24): greedy with an on-demand fallback",
        SpotFallbackParameters(),
        worlds=MARKET,
    )
)
