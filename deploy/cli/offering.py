"""`spotweave offers`: what could be rented now, asked of the clouds themselves or of a service."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.cli.client import Client
from deploy.cli.queries import print_json
from deploy.cli.tables import gpus, show, usd
from deploy.clouds import open_providers
from deploy.config import DeploymentConfig
from deploy.model.gpus import is_model
from deploy.providers.base import ProviderError
from spotweave.mistakes import say

Row = dict[str, Any]
"""Facts of an `Offer`; asked of the clouds themselves, also `ProviderConfig.details`."""


def offers_of_clouds(path: Path, gpu: str | None, max_price_usd_hour: float | None) -> list[Row]:
    """Ask all providers of a deployment for their offers now.

    Raises:
        ValueError: one line, if the deployment's file or one of them cannot be used.
    """
    rows: list[Row] = []
    config = DeploymentConfig.load(path)
    try:
        for name, provider in open_providers(config).items():
            with closing(provider):
                offers = [one for one in provider.offers() if _wanted(asdict(one), gpu, max_price_usd_hour)]
                details, notes = config.rented()[name].details(provider, offers, time.time())
            for line in notes:
                say(f"note: {line}")
            rows += [{**asdict(one), **details.get(one.offer_id, {})} for one in offers]
    except ProviderError as error:
        raise ValueError(str(error)) from error
    return rows


def _wanted(row: Row, gpu: str | None, max_price_usd_hour: float | None) -> bool:
    return (gpu is None or (row["gpu"] is not None and is_model(gpu, row["gpu"]))) and (
        max_price_usd_hour is None or row["price_usd_hour"] <= max_price_usd_hour
    )


def offers_of_service(client: Client) -> list[Row]:
    """As they were in the scheduler's latest pass. Raises ServiceError."""
    return [dict(one) for one in client.get("/v1/offers")]


def offers(rows: Sequence[Row], gpu: str | None, max_price_usd_hour: float | None, *, as_json: bool) -> None:
    """Print those that are wanted of what is offered: what can be rented first, the cheapest first."""
    wanted = [one for one in rows if _wanted(one, gpu, max_price_usd_hour)]
    wanted.sort(key=lambda one: (not one["available"], one["price_usd_hour"], one["offer_id"]))
    if as_json:
        print_json(wanted)
        return
    table = [
        (
            one["zone"] or one["region"] or "-",
            one["instance_type"],
            one["market"],
            gpus(one),
            usd(one["price_usd_hour"]),
            usd(one["on_demand_usd_hour"]),
            f"{100 * one['up_ratio']:.0f} %",
            str(one.get("score") or "-"),
            "yes" if one["available"] else f"no: {one['reason'] or 'availability unknown'}",
        )
        for one in wanted
    ]
    headings = ("ZONE", "TYPE", "MARKET", "GPU", "USD/H>", "ON DEMAND>", "UP>", "SCORE>", "AVAILABLE*")
    show(headings, table, "no offer matches")
