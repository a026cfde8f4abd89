"""Seconds for 1,000 applications of 30 synchronous rounds with 8 clients under FedCostAware."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agents.federated.rules.fed_cost_aware import FedCostAware
from benchmarks.machine import one_core
from benchmarks.measurement import Measurement
from envs.simulation.federations.rounds.application import Application, Client, Market, Offer
from envs.simulation.federations.rounds.tariff import Tariff
from envs.simulation.federations.rounds.world import play

APPLICATIONS = 1000
BAR_S = 30.0


def application() -> Application:
    """8 clients over two zones with prices that change, and interruptions every six hours on average."""
    offers = tuple(
        Offer(
            f"zone {zone} spot",
            f"zone {zone}",
            Market.SPOT,
            Tariff(
                [3600 * hour for hour in range(48)], [0.35 + 0.01 * ((hour + zone) % 7) for hour in range(48)]
            ),
            mean_time_to_interruption_s=6 * 3600.0,
        )
        for zone in range(2)
    )
    clients = tuple(
        Client(f"client {k}", 900.0 * 0.7**k, 900.0 * 0.7**k + 130.0, 180.0, (0, 1), budget_usd=50.0)
        for k in range(8)
    )
    return Application("benchmark", 30, clients, offers, epoch_cv=0.01, spin_up_cv=0.1)


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """CPU seconds, so that neighbours cost nothing; one application before the clock starts."""
    example, policy = application(), FedCostAware()
    applications = 2 if smallest else APPLICATIONS
    with one_core():
        play(example, policy, applications)
        started = time.process_time()
        for seed in range(applications):
            play(example, policy, seed)
        seconds = time.process_time() - started
    yield Measurement(
        f"{applications:,} federated applications, 30 rounds, 8 clients",
        seconds,
        "s",
        BAR_S,
        higher_is_better=False,
        note="FedCostAware decides; changing prices, interruptions and budgets; CPU seconds of one core",
    )
