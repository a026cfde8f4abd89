"""The provider's own books: what each instance must cost, from its records and the offers alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

SMALL = {"instance_type": "small", "vcpus": 1, "memory_gib": 1.5, "launch_s": 0.5}
SPOT = {**SMALL, "market": "spot", "on_demand_usd_hour": 0.0371, "quota": 6, "notice_s": 10}
ON_DEMAND = {**SMALL, "market": "on_demand", "region": "here", "quota": 8}
OFFERS: list[dict[str, Any]] = [
    {**SPOT, "zone": "here-a", "price_usd_hour": 0.0123, "billing_minimum_s": 7},
    {**SPOT, "zone": "here-b", "price_usd_hour": 0.0157, "billing_minimum_s": 60},
    {**ON_DEMAND, "price_usd_hour": 0.0371, "billing_minimum_s": 60},
]


@dataclass(frozen=True)
class Entry:
    """One instance.

    Attributes:
        client_token: that it was launched with.
        job_id: for which it was.
        ended: whether it has.
        micro_usd: what it has cost; whole seconds at a constant price, so exact.
    """

    client_token: str
    job_id: str
    ended: bool
    micro_usd: Fraction


def read(state: Path, offers: Sequence[dict[str, Any]]) -> list[Entry]:
    """All instances that were ever born, from the state folder and the offers of a local provider."""
    found = []
    for folder in sorted((state / "instances").iterdir()):
        if not (folder / "init.json").exists():
            continue
        record = json.loads((folder / "instance.json").read_bytes())
        launched_s = json.loads((folder / "init.json").read_bytes())["launched_s"]
        offer = next(one for one in offers if _offer_id(one) == record["offer_id"])
        ended_s = record["ended_s"]
        # Microseconds: what epoch seconds resolve.
        ran_us = round(((ended_s or launched_s) - launched_s) * 1e6)
        seconds = max(ceil(Fraction(max(ran_us, 0), 10**6)), offer["billing_minimum_s"])
        price = round(offer["price_usd_hour"] * 1e6)
        cost = Fraction(seconds * price, 3600)
        found.append(Entry(record["client_token"], record["job_id"], ended_s is not None, cost))
    return found


def _offer_id(offer: dict[str, Any]) -> str:
    return f"local/{offer.get('zone') or offer['region']}/{offer['instance_type']}/{offer['market']}"
