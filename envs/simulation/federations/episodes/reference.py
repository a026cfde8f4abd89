"""What an application would take without waiting: the measure of its cost and time in per cent."""

from __future__ import annotations

from dataclasses import dataclass

from envs.simulation.federations.rounds.application import Application, Client, Market
from envs.simulation.federations.rounds.server import Server


@dataclass(frozen=True)
class Reference:
    """All tasks on on-demand offers (spot where there are none) from the beginning to the end.

    Attributes:
        time_s: the slowest spin-up, then the slowest epoch of each round on each client's fastest offer: mean
            times, cold in the first round; messages and checkpoints excluded.
        cost_usd: every task on its cheapest on-demand offer (the dearest spot one where there is none) for
            that time, at the prices of the beginning.
    """

    time_s: float
    cost_usd: float


def reference_of(application: Application) -> Reference:
    """The reference of an application."""
    clients = application.clients
    tasks: list[Client | Server] = [*clients]
    aggregation_s = float(application.aggregation_s)
    if application.server is not None:
        tasks.append(application.server)
        aggregation_s = min(application.server_aggregation_s(offer) for offer in application.server.offers)
    spin_up_s = max(min(application.spin_up_s(task, offer) for offer in task.offers) for task in tasks)
    warm_s, cold_s = (
        max(min(client.times(offer)[kind] for offer in client.offers) for client in clients)
        for kind in (0, 1)
    )
    time_s = spin_up_s + cold_s + (application.rounds - 1) * warm_s + application.rounds * aggregation_s
    usd_hour = application.server_usd_hour + sum(_usd_hour(application, task) for task in tasks)
    return Reference(time_s, max(1e-9, usd_hour * time_s / 3600))


def _usd_hour(application: Application, task: Client | Server) -> float:
    offers = [application.offers[offer] for offer in task.offers]
    listed = [offer.tariff.usd_hour(0) for offer in offers if offer.market is Market.ON_DEMAND]
    return min(listed) if listed else max(offer.tariff.usd_hour(0) for offer in offers)
