"""Offers on which all tasks of an application can run at once: what it claims in a fleet."""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np

from envs.simulation.federations.fleet.quotas import SharedQuota, amounts_of
from envs.simulation.federations.rounds.application import Application, Market
from envs.simulation.federations.rounds.server import SERVER


def cheapest_claim(
    application: Application,
    quotas: Sequence[SharedQuota],
    client_market: Market,
    server_market: Market = Market.ON_DEMAND,
) -> dict[int, int]:
    """By task (a client's index, or SERVER), the offers that cost least in sum and keep the quotas together.

    Prices are those of the first second.

    Raises:
        ValueError: if a task may rent nothing on its market, or the quotas have no room for all tasks; the
            message names the one in the way.
    """
    offers = application.offers
    tasks: list[tuple[int, list[int]]] = [
        (k, [offer for offer in client.offers if offers[offer].market is client_market])
        for k, client in enumerate(application.clients)
    ]
    if application.server is not None:
        tasks.append((SERVER, [k for k in application.server.offers if offers[k].market is server_market]))
    for task, allowed in tasks:
        if not allowed:
            market = (server_market if task == SERVER else client_market).name.lower().replace("_", "-")
            name = "the server" if task == SERVER else f"client {application.clients[task].name}"
            raise ValueError(f"{name} of {application.name!r} may rent no {market} offer: give it one")
    amounts = amounts_of(quotas, application)
    pairs = [(row, offer) for row, (_, allowed) in enumerate(tasks) for offer in allowed]
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0)):
        solver.setOptionValue(option, value)
    for column, (_, offer) in enumerate(pairs):
        solver.addVar(0.0, 1.0)
        solver.changeColCost(column, offers[offer].tariff.usd_hour(0))
        solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    for row in range(len(tasks)):
        own = np.array([column for column, pair in enumerate(pairs) if pair[0] == row])
        solver.addRow(1.0, 1.0, len(own), own, np.ones(len(own)))
    for quota, taken in zip(quotas, amounts, strict=True):
        values = np.array([taken[offer] for _, offer in pairs])
        solver.addRow(-highspy.kHighsInf, quota.limit, len(pairs), np.arange(len(pairs)), values)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ValueError(_in_the_way(application, quotas, amounts.tolist(), [item[1] for item in tasks]))
    chosen = np.array(solver.getSolution().col_value) > 0.5
    return {tasks[row][0]: offer for (row, offer), is_on in zip(pairs, chosen, strict=True) if is_on}


def _in_the_way(
    application: Application,
    quotas: Sequence[SharedQuota],
    amounts: Sequence[Sequence[float]],
    allowed: Sequence[Sequence[int]],
) -> str:
    """The quotas that are too small each alone; where none is, those that matter, together."""
    parts = []
    for quota, taken in zip(quotas, amounts, strict=True):
        least = sum(min(taken[offer] for offer in offers) for offers in allowed)
        if least > quota.limit:
            parts.append(f"{quota.limit:g} {quota.name}, at least {least:g} are needed")
    if not parts:
        used = [quota.name for quota, taken in zip(quotas, amounts, strict=True) if any(taken)]
        parts = [f"too few of {', '.join(used)} together"]
    return f"the quotas have no room for all tasks of {application.name!r}: there are {'; '.join(parts)}"
