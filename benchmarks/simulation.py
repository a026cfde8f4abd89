"""Steps per second of a registered environment with a rule: one copy, and 64 copies in one call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from agents.rules import make_rule
from benchmarks.machine import one_core
from benchmarks.measurement import Measurement
from envs.environments import register
from envs.simulation.snapshot import Observation

COPIES = 64
REPEATS = 5
REPEAT_S = 1.5
"""CPU seconds of one repeat; the median repeat counts. Warm-up (compilation) comes before the first."""


def measure(
    env_id: str, rule: str, single_bar: float, vector_bar: float, *, smallest: bool = False
) -> Iterator[Measurement]:
    """Both forms of one environment. The rule's own time and resets are included in every step."""
    title = env_id.removeprefix("spotweave/")
    register()
    note = f"{rule} decides, resets included, per CPU second of one core"
    forms = (("one copy", _single, single_bar), (f"{COPIES} copies", _vector, vector_bar))
    with one_core():
        for form, play, bar in forms:
            rate = _rate(play(env_id, rule), 1 if smallest else REPEATS, 0.01 if smallest else REPEAT_S)
            yield Measurement(f"{title}, {form}", rate, "steps/s", bar, note=note)


def _rate(play: Callable[[float], int], repeats: int, repeat_s: float) -> float:
    """Median steps per CPU second over the repeats. CPU seconds, so that neighbours cost nothing."""
    play(repeat_s)
    rates = []
    for _ in range(repeats):
        started = time.process_time()
        steps = play(repeat_s)
        rates.append(steps / (time.process_time() - started))
    return statistics.median(rates)


def _single(env_id: str, rule: str) -> Callable[[float], int]:
    # Gymnasium's checker compares every step with the spaces; nobody trains with it.
    env = gymnasium.make(env_id, disable_env_checker=True)
    policy = make_rule(rule)
    observation, _ = env.reset(seed=0)
    policy.begin(0, 0)

    def play(seconds: float) -> int:
        nonlocal observation
        steps, end = 0, time.process_time() + seconds
        while time.process_time() < end:
            for _ in range(100):
                action = policy.act(cast(Observation, observation))
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    observation, _ = env.reset()
                    policy.begin(0, 0)
            steps += 100
        return steps

    return play


def _vector(env_id: str, rule: str) -> Callable[[float], int]:
    # In the mode SAME_STEP every observation belongs to a decision, so that the rule can act on all of them.
    env = gymnasium.make_vec(
        env_id,
        num_envs=COPIES,
        vectorization_mode="vector_entry_point",
        autoreset_mode=AutoresetMode.SAME_STEP,
        copy=False,
    )
    policy = make_rule(rule)
    observations, _ = env.reset(seed=0)
    lanes = np.arange(COPIES)
    for lane in range(COPIES):
        policy.begin(lane, lane)

    def play(seconds: float) -> int:
        nonlocal observations
        steps, end = 0, time.process_time() + seconds
        while time.process_time() < end:
            for _ in range(20):
                actions = policy.act_batch(cast(Observation, observations), lanes)
                observations, _, _, _, _ = env.step(actions)
            steps += 20 * COPIES
        return steps

    return play
