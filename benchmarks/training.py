"""Decisions and gradient steps per second in training, and how long one decision takes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from benchmarks.measurement import Measurement, at_most, one_core
from spotweave.agents.named import named_rule, rules_of
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.config import agent_settings, compose_values, typed, world_config
from spotweave.training.evaluation.episodes import measure_latency
from spotweave.training.settings import TrainerSettings
from spotweave.training.trainers.build import build_trainer
from spotweave.training.trainers.monte_carlo import MonteCarloTrainer
from spotweave.training.trainers.spot import SpotTrainer
from spotweave.training.trainers.trainer import Task, Trainer

AT_LEAST_S = 10.0
GRADIENT_STEPS = 40
DECISIONS = 1000
SMALLEST = ("trainer=quick", "trainer.validation_episodes=1")


def untrained(env: str, agent_name: str, *overrides: str) -> Trainer:
    """A fresh trainer on the CPU, as the training command makes it."""
    values = compose_values("train", [f"+env={env}", f"agent={agent_name}", *overrides])
    settings = typed(TrainerSettings, values["trainer"], "trainer")
    agent = agent_settings(values["agent"])
    config, device = world_config(values["env"]), torch.device("cpu")
    task = Task(ENVIRONMENTS[env], config, agent, settings, values["seed"], device)
    return build_trainer(task)[0]


def world_of(env: str) -> BatchWorld:
    """One copy of an environment; where there are many members, of the first that is validated on."""
    config = world_config(compose_values("train", [f"+env={env}"])["env"])
    return ENVIRONMENTS[env].build(ENVIRONMENTS[env].members_of(config, "validation")[0], 1)


def measure_throughput(*, smallest: bool = False) -> Iterator[Measurement]:
    """Whole rounds (play, label, learn) of each world's default agent, by the clock, on all cores."""
    for env, entry in ENVIRONMENTS.items():
        trainer = untrained(env, entry.default_agent, *(SMALLEST if smallest else ()))
        trainer.round()  # compiles, fills the replay, fits the input normalisation
        name = f"{entry.default_agent} on {env}"
        started = time.perf_counter()
        decisions, elapsed = 0, 0.0
        while elapsed < (0.0 if smallest else AT_LEAST_S) or not decisions:
            decisions += trainer.round().decisions
            elapsed = time.perf_counter() - started
        rate = decisions / elapsed
        yield Measurement(f"{name}: training", rate, "decisions/s", note="rounds of play and learning")
        if not isinstance(trainer, MonteCarloTrainer):
            continue
        started = time.perf_counter()
        for _ in range(GRADIENT_STEPS):
            size, device = trainer.settings.batch_size, trainer.device
            trainer.regression.step(*trainer.replay.sample(size, device))
        rate = GRADIENT_STEPS / (time.perf_counter() - started)
        note = f"batches of {trainer.settings.batch_size}"
        yield Measurement(f"{name}: learning", rate, "gradient steps/s", note=note)


def measure_decisions(*, smallest: bool = False) -> Iterator[Measurement]:
    """One observation at a time: each world's default agent, untrained (which takes as long), and a rule."""
    decisions = 3 if smallest else DECISIONS
    key = EpisodeKey(seed=0, split="validation", index=0)
    for env, entry in ENVIRONMENTS.items():
        trainer = untrained(env, entry.default_agent)
        if isinstance(trainer, SpotTrainer):
            trainer.round()  # before that there is no table of choices to look up
        world = world_of(env)
        for policy in (trainer.policy, named_rule(rules_of(env)[-1])):
            with one_core():
                latency = measure_latency(world, policy, key, decisions=decisions)
            name = f"{policy.name} on {env}: one decision"
            note = f"batch 1, {latency.decisions} decisions"
            yield at_most(f"{name}, p50", latency.p50_ms, "ms", note=note)
            yield at_most(f"{name}, p99", latency.p99_ms, "ms", note=note)
