"""How much of a shared quota was rented when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from envs.simulation.federations.fleet.fleet import Played
from envs.simulation.federations.fleet.quotas import SharedQuota


def usage(quota: SharedQuota, played: Iterable[Played]) -> list[tuple[int, float]]:
    """(second of the fleet's clock, what is rented from then on) wherever it changes; empty if never used."""
    changes: defaultdict[int, float] = defaultdict(float)
    for item in played:
        offers = item.outcome.application.offers
        for bill in item.outcome.bills:
            amount = quota.amounts.get(offers[bill.offer].name, 0.0)
            changes[item.begun_s + bill.start_s] += amount
            changes[item.begun_s + bill.end_s] -= amount
    steps, used = [], 0.0
    for time_s in sorted(changes):
        if changes[time_s]:
            used += changes[time_s]
            steps.append((time_s, used))
    return steps
