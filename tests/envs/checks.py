"""Metrics up to rounding, refusals in one line, documents with one mistake, and episodes of one lane."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from spotweave.agents.policy import Policy
from spotweave.envs.simulation.snapshot import Observation
from spotweave.envs.simulation.world import BatchWorld


def check(metrics: Mapping[str, float], **expected: float) -> None:
    """Some of the metrics are these, up to rounding."""
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


@contextmanager
def refused(error: type[Exception], *said: str) -> Iterator[None]:
    """What runs within is refused with this error, which says all this in one line."""
    with pytest.raises(error) as caught:
        yield
    for words in said:
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def place(entry: Any, key: str) -> int | str:
    return int(key) if isinstance(entry, list) else key


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the entry at a path of keys and places between "/" replaced; `...` takes it away."""
    changed = copy.deepcopy(document)
    *parents, last = path.split("/")
    entry: Any = changed
    for key in parents:
        entry = entry[place(entry, key)]
    if value is ...:
        del entry[place(entry, last)]
    else:
        entry[place(entry, last)] = value
    return changed


def valid(world: BatchWorld) -> list[int]:
    """The actions that may be taken in the first lane."""
    return [int(action) for action in np.flatnonzero(world.observation["action_mask"][0])]


def answer(world: BatchWorld, *actions: int) -> tuple[float, bool]:
    """Some steps of a world of one lane: the sum of their rewards, and whether the last ended the episode."""
    total, done = 0.0, False
    for action in actions:
        rewards, ended = world.step(np.array([action]))
        total, done = total + float(rewards[0]), bool(ended[0])
    return total, done


def to_the_end(world: BatchWorld, choose: Callable[[], int]) -> float:
    """Answers until the episode of a world of one lane has ended: the sum of their rewards."""
    total = 0.0
    while valid(world):
        total += answer(world, choose())[0]
    return total


def at_random(world: BatchWorld, seed: int) -> float:
    """Any valid answers to the end."""
    rng = np.random.default_rng(seed)
    return to_the_end(world, lambda: int(rng.choice(valid(world))))


def decided(policy: Policy, shown: Observation) -> int:
    """What a policy answers in its first lane."""
    return int(policy.act_batch(shown, np.zeros(1, np.int64))[0])


def by_policy(world: BatchWorld, policy: Policy) -> float:
    """A policy's answers to the end."""
    policy.begin(0, 0)
    return to_the_end(world, lambda: decided(policy, world.observation))
