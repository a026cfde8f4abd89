"""On-demand only: never use capacity that the provider may interrupt.

The reference that spot savings are usually given against ("Can't Be Late", NSDI'24; Teylo 2021, Table 7.4).
"""

from __future__ import annotations

from spotweave.agents.rules.choice import NO_ACTION, flat_action, is_valid, stays, urgent_job
from spotweave.agents.rules.offers import SAFE, any_offer, cheapest_offer
from spotweave.agents.rules.registry import MARKET, Rule, register
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def choose(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
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


register(Rule("on_demand", "On-demand only", choose, "common practice", worlds=MARKET))
