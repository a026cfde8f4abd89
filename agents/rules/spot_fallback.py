"""Greedy spot with an on-demand fallback: the common practice that "Can't Be Late" (NSDI'24) starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION, flat_action, is_valid, stays, urgent_job
from agents.rules.compiled import compiled
from agents.rules.offers import (
    OPPORTUNISTIC,
    SAFE,
    any_offer,
    cheapest_offer,
    is_pressed,
    no_dearer,
    place_of,
)
from agents.rules.parameters import RuleParameters
from agents.rules.registry import MARKET, Rule, register
from envs.simulation import columns as col
from envs.simulation.snapshot import ObservationArrays


@dataclass(frozen=True)
class SpotFallbackParameters(RuleParameters):
    """When greedy spot gives up on spot.

    Attributes:
        changeovers: changeover delays that must remain beyond the work left (2 in "Can't Be Late").
    """

    changeovers: float = 2.0


@compiled
def choose(obs: ObservationArrays, memory: NDArray[np.float64], parameters: NDArray[np.float64]) -> int:
    """The most urgent job takes the cheapest spot offer; without slack for an interruption, a safe one.

    A job on spot capacity is moved to a safe offer while that still meets its deadline. If no spot offer is
    available, the job waits.
    """
    job = urgent_job(obs)
    if job < 0:
        return NO_ACTION
    safe = cheapest_offer(obs, job, SAFE)
    spot = cheapest_offer(obs, job, OPPORTUNISTIC)
    pressed = is_pressed(obs, job, safe, spot, parameters[0])
    if stays(obs, job):
        here = place_of(obs, job)
        risky = here >= 0 and obs.clusters[here, col.IS_SPOT] != 0.0
        return flat_action(obs, job, safe if risky and pressed else -1)
    offer = safe if pressed else no_dearer(obs, job, spot, safe)
    if offer < 0 and not is_valid(obs, job, -1):
        offer = any_offer(obs, job)
    return flat_action(obs, job, offer)


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
