"""Offers and needs with round numbers."""

from __future__ import annotations

from typing import Any

from deploy.model.instances import Market, Offer
from deploy.model.jobs import Places, Resources, TaskKey
from deploy.scheduler.needs import Kind, Need


def offer(name: str, market: Market = "spot", **changes: Any) -> Offer:
    facts: dict[str, Any] = {
        "offer_id": name,
        "provider": "local",
        "region": "here",
        "zone": "here-a",
        "instance_type": "small",
        "market": market,
        "vcpus": 4,
        "memory_gib": 8.0,
        "gpu": None,
        "speed": 1.0,
        "price_usd_hour": 0.3 if market == "spot" else 1.0,
        "on_demand_usd_hour": 1.0,
        "available": True,
        "quota": 4,
        "mean_up_s": 7200.0,
        "launch_s": 60.0,
    }
    return Offer(**{**facts, **changes})


def need(job: str = "job", kind: Kind = "general", **changes: Any) -> Need:
    facts: dict[str, Any] = {
        "key": TaskKey(job, "main"),
        "kind": kind,
        "resources": Resources(),
        "places": Places(),
        "standard_s": 600.0,
    }
    return Need(**{**facts, **changes})
