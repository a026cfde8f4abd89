"""Decision latency: one observation at a time, on one core."""

from __future__ import annotations

from collections.abc import Iterator

from agents.named import named_rule, rules_of
from benchmarks.machine import one_core
from benchmarks.measurement import Measurement
from benchmarks.training import untrained, world_of
from envs.environments import ENVIRONMENTS
from envs.simulation.world import EpisodeKey
from training.evaluation.episodes import measure_latency
from training.trainers.spot import SpotTrainer

DECISIONS = 1000


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """The default agent of each world and, next to it, a rule. Untrained weights take as long as trained."""
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
            yield Measurement(f"{name}, p50", latency.p50_ms, "ms", higher_is_better=False, note=note)
            yield Measurement(f"{name}, p99", latency.p99_ms, "ms", higher_is_better=False, note=note)
