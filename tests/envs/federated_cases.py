"""Plays federated applications decision by decision, through the world behind `spotweave/Federated-v1`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from agents.policy import Policy
from envs.simulation import columns as col
from envs.simulation.federations.episodes.world import FederatedWorld, OneApplication
from envs.simulation.federations.rounds.application import Application
from envs.simulation.world import EpisodeKey

KEY = EpisodeKey(0, "test", 0)
SPOT, ON_DEMAND, NONE = 0, 1, 2
"""Actions where there are the two offers of `tests.envs.rounds_cases`."""
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

    def until_end(self, choose: Callable[[Story], int]) -> list[tuple[float, int]]:
        """Answer the rest; what was asked."""
        asked = []
        while not self.over:
            asked.append(self.answer(choose(self)))
        return asked


def play_policy(world: FederatedWorld, policy: Policy, key: EpisodeKey = KEY) -> float:
    """The whole episode in lane 0 of a world of one lane: the sum of its rewards."""
    world.reset([key])
    policy.begin(0, 0)
    total, lanes = 0.0, np.zeros(1, np.int64)
    while True:
        rewards, done = world.step(policy.act_batch(world.observation, lanes))
        total += float(rewards[0])
        if done[0]:
            return total


def random_action(mask: np.ndarray[tuple[int, ...], np.dtype[np.int8]], rng: np.random.Generator) -> int:
    """A valid action; waiting not too often, so that episodes end soon."""
    valid = np.flatnonzero(mask)
    if valid[-1] == len(mask) - 1 and len(valid) > 1 and rng.random() < 0.5:
        valid = valid[:-1]
    return int(rng.choice(valid))
