"""Small applications of synchronous rounds whose times and money can be computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envs.simulation.federations.rounds.application import Application, Client, Interruption, Market, Offer
from envs.simulation.federations.rounds.decisions import NEVER, Answer, Cause, Leave, Placement, Question
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.federations.rounds.tariff import Tariff

SPOT_USD_HOUR = 0.36
"""0.0001 USD per second."""
ON_DEMAND_USD_HOUR = 1.08
SLOW, FAST = 0, 1


def two_offers() -> tuple[Offer, ...]:
    return (
        Offer("spot", "zone", Market.SPOT, Tariff.constant(SPOT_USD_HOUR)),
        Offer("on-demand", "zone", Market.ON_DEMAND, Tariff.constant(ON_DEMAND_USD_HOUR)),
    )


def two_clients(
    rounds: int,
    interruptions: tuple[tuple[int, int], ...] = (),
    fast_budget_usd: float | None = None,
    **settings: Any,
) -> Application:
    """A slow client (600 s, cold 700 s) and a fast one (100 s, cold 150 s); 100 s of spin-up."""
    return Application(
        "two clients",
        rounds,
        (
            Client("slow", 600, 700, 100, (0, 1)),
            Client("fast", 100, 150, 100, (0, 1), fast_budget_usd),
        ),
        two_offers(),
        interruptions=tuple(Interruption(client, time_s) for client, time_s in interruptions),
        **settings,
    )


class RandomPolicy:
    """Any valid answer: keeps, releases for a while or until the next round, moves, leaves."""

    name = "random"

    def __init__(self, seed: int, leaves: float = 0.02) -> None:
        self._seed = seed
        self._leaves = leaves

    def start(self, view: RunningApplication) -> None:
        self._generator = np.random.default_rng(self._seed)

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        generator, client = self._generator, view.clients[question.client]
        if generator.random() < self._leaves:
            return Leave()
        offer = int(generator.choice(client.allowed))
        choice = generator.random()
        if choice < 0.3:
            return Placement(offer, view.now_s + int(generator.integers(1, 900)))
        if choice < 0.4 and question.cause is Cause.FINISHED:
            return Placement(offer, NEVER)
        available = [k for k in client.allowed if view.available(k)]
        if not available:
            return Placement(offer, view.now_s + 60)
        if client.running and client.offer is not None and choice < 0.8:
            return Placement(client.offer)
        return Placement(int(generator.choice(available)))


class Script:
    """Answers given beforehand by (cause, client); any other question keeps or starts on offer 0."""

    name = "script"

    def __init__(self, answers: Mapping[tuple[Cause, int], Answer]) -> None:
        self._answers = answers
        self.asked: list[tuple[int, Question]] = []

    def start(self, view: RunningApplication) -> None:
        self.asked = []

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        self.asked.append((view.now_s, question))
        return self._answers.get((question.cause, question.client), Placement(0))
