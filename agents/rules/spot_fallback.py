"""Greedy spot with an on-demand fallback: the common practice that "Can't Be Late" (NSDI'24) starts from."""

from __future__ import annotations

from dataclasses import dataclass

from spotweave.agents.rules.choice import NO_ACTION, urgent_job
from spotweave.agents.rules.offers import OPPORTUNISTIC, cheapest_offer, spot_while_it_lasts
from spotweave.agents.rules.registry import MARKET, Rule, RuleParameters, register
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@dataclass(frozen=True)
class SpotFallbackParameters(RuleParameters):
    """When greedy spot gives up on spot."""

    changeovers: float = 2.0  # changeover delays that must remain beyond the work left (2 in "Can't Be Late")


@inner
def choose(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
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
        choose,
        "Can't Be Late (NSDI'24): greedy with an on-demand fallback",
        SpotFallbackParameters(),
        worlds=MARKET,
    )
)
