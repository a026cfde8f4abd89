"""Plays federated applications decision by decision, through the world behind `spotweave/Federated-v1`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Client,
    Interruption,
    Market,
    Offer,
    Tariff,
)
from spotweave.envs.simulation.federations.rounds.decisions import (
    NEVER,
    Answer,
    Cause,
    Leave,
    Outcome,
    Placement,
    Question,
)
from spotweave.envs.simulation.federations.rounds.running import RunningApplication
from spotweave.envs.simulation.federations.world import FederatedWorld, OneApplication
from spotweave.envs.simulation.world import EpisodeKey
from tests.envs.checks import by_policy, to_the_end, valid

KEY = EpisodeKey(0, "test", 0)
SPOT, ON_DEMAND, NONE = 0, 1, 2
"""Actions where there are the offers of `two_offers`."""
SLOW, FAST = 0, 1


def world_of(application: Application, lanes: int = 1, measured: bool = False) -> FederatedWorld:
    """Lanes that play one application, whose clients begin when they are ready."""
    given = dataclasses.replace(application, start_together=False)
    return FederatedWorld(OneApplication(given), lanes, measured=measured)


class Story:
    """One episode, decision by decision."""

    def __init__(self, application: Application, measured: bool = True) -> None:
        self.world = world_of(application, measured=measured)
        self.world.reset([KEY])
        self.over = False
        self.reward = 0.0

    def job(self, field: int) -> float:
        return float(self.world.observation["jobs"][0, 0, field])

    def told(self, *fields: int) -> list[float]:
        return [self.job(field) for field in fields]

    def clusters(self, field: int) -> list[float]:
        return [float(value) for value in self.world.observation["clusters"][0, :, field]]

    def pairs(self, field: int) -> list[float]:
        return [float(value) for value in self.world.observation["pairs"][0, 0, :, field]]

    @property
    def now_s(self) -> float:
        return self.job(col.AGE_S)

    @property
    def mask(self) -> list[int]:
        return [int(valid) for valid in self.world.observation["action_mask"][0]]

    def answer(self, action: int) -> tuple[float, int]:
        """Take an action: the second it was asked in, and the client that it was about."""
        now_s = self.now_s
        rewards, done = self.world.step(np.array([action]))
        self.reward += float(rewards[0])
        self.over = bool(done[0])
        return now_s, int(self.world.decided_jobs()[0])

    def answers(self, *actions: int) -> list[tuple[float, int]]:
        """Take some: what was asked."""
        return [self.answer(action) for action in actions]

    def until_end(self, choose: Callable[[Story], int]) -> list[tuple[float, int]]:
        """Answer the rest; what was asked."""
        asked = []
        while not self.over:
            asked.append(self.answer(choose(self)))
        return asked


def play_policy(world: FederatedWorld, policy: Policy, key: EpisodeKey = KEY) -> float:
    """The whole episode in a world of one lane: the sum of its rewards."""
    world.reset([key])
    return by_policy(world, policy)


def play_at_random(world: FederatedWorld, seed: int) -> float:
    """Any valid answers to the end; waiting not too often, so that it comes soon."""
    rng = np.random.default_rng(seed)

    def choose() -> int:
        actions = valid(world)
        if actions[-1] == world.spec.n_clusters and len(actions) > 1 and rng.random() < 0.5:
            actions.pop()
        return int(rng.choice(actions))

    return to_the_end(world, choose)


# Small applications of synchronous rounds whose times and money can be computed by hand.


SPOT_USD_HOUR = 0.36
"""0.0001 USD per second."""
ON_DEMAND_USD_HOUR = 1.08


def two_offers(**spot: Any) -> tuple[Offer, ...]:
    """Spot, where `spot` changes it, and on demand."""
    first = Offer("spot", "zone", Market.SPOT, Tariff.constant(SPOT_USD_HOUR))
    second = Offer("on-demand", "zone", Market.ON_DEMAND, Tariff.constant(ON_DEMAND_USD_HOUR))
    return dataclasses.replace(first, **spot), second


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
        (Client("slow", 600, 700, 100, (0, 1)), Client("fast", 100, 150, 100, (0, 1), fast_budget_usd)),
        two_offers(),
        interruptions=tuple(Interruption(client, time_s) for client, time_s in interruptions),
        **settings,
    )


def bills_of(outcome: Outcome, client: int) -> list[tuple[int, int]]:
    """From when to when a client paid for an instance."""
    return [(bill.start_s, bill.end_s) for bill in outcome.bills if bill.client == client]


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
