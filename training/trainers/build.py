"""Build the trainer that an environment and settings ask for."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from spotweave.agents.mtdqn.policy import MTDQNPolicy
from spotweave.agents.named import named_rule
from spotweave.agents.networks import ValueNetwork, ValuePolicy
from spotweave.agents.registry import (
    LibrarySettings,
    MTDQNSettings,
    Shape,
    SpotSettings,
    ValueSettings,
    agent_named,
)
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.adapters.base import LibraryTask, LibraryTrainer
from spotweave.training.config import UsageError
from spotweave.training.settings import require_library
from spotweave.training.trainers.monte_carlo import MonteCarloTrainer
from spotweave.training.trainers.multi_target import MultiTargetTrainer
from spotweave.training.trainers.spot import SpotTrainer
from spotweave.training.trainers.trainer import Task, Trainer

GUIDES = {
    "multicloud": ("expected_cost",),
    "bags": ("bag_cost",),
    "workflows": ("workflow_cost",),
    "federated": ("round_cost",),
}
"""Guides that `mtdqn` may have, by world; elsewhere `tuned` or `committed`."""
Built = tuple[Trainer, tuple[float, ...], tuple[float, ...]]
"""A trainer, the value scales and the weights it uses."""


def build_trainer(task: Task) -> Built:
    """A trainer with the worlds it plays in.

    Raises:
        UsageError, WorldError, ValueError: one line, for settings that do not go together.
    """
    entry, agent, settings = task.entry, task.agent, task.settings
    described = agent_named(agent.kind)
    if settings.variety.share > 0.0 and not (isinstance(agent, MTDQNSettings) and entry.draw is not None):
        raise UsageError(
            f"trainer.variety.share is {settings.variety.share}: expected 0, other markets are drawn in "
            "+env=multicloud for agent=mtdqn only"
        )
    spec = entry.build(entry.members_of(task.config, "train")[0], 2).spec
    if described.worlds is not None and spec.name not in described.worlds:
        raise UsageError(
            f"agent={agent.kind} does not know the tasks of this environment: it knows those of "
            f"{' and '.join(described.worlds)}; try agent={entry.default_agent}"
        )
    if isinstance(agent, MTDQNSettings):
        named_rule(agent.guide, spec)
        expected = GUIDES.get(spec.name, ("tuned", "committed"))
        if agent.guide not in expected:
            raise UsageError(
                f"agent.guide is {agent.guide}: expected {' or '.join(expected)} in this environment"
            )
    if described.trainer is not None:
        return described.trainer(task), spec.scales, spec.objective_weights
    if isinstance(agent, LibrarySettings):
        build = partial(entry.build, task.config, 1)
        wanted = LibraryTask(build, agent, settings, named_rule(settings.guide, spec), task.seed, task.device)
        return make_library_trainer(wanted), spec.scales, spec.objective_weights
    if isinstance(agent, SpotSettings):
        return SpotTrainer(task, agent), spec.scales, spec.objective_weights
    assert described.make is not None
    if isinstance(agent, MTDQNSettings):
        return _multi_target_trainer(task, agent, spec)
    if (members := len(entry.members_of(task.config, "train"))) > 1:
        raise UsageError(
            f"agent={agent.kind} trains in one world, and env stands for {members}: name one (env.clusters, "
            f"no env.loads), or use agent={entry.default_agent}"
        )
    assert isinstance(agent, ValueSettings)
    return _value_trainer(task, agent, spec)


def _checked(given: list[float], default: tuple[float, ...], spec: WorldSpec, name: str) -> tuple[float, ...]:
    """`agent.NAME`, or the world's where it is empty: one number for each value component."""
    chosen = tuple(given) or default
    if len(chosen) != len(spec.components):
        raise ValueError(
            f"agent.{name} has {len(chosen)} numbers, expected one for each of {', '.join(spec.components)}"
        )
    return chosen


def _value_trainer(task: Task, agent: ValueSettings, spec: WorldSpec) -> Built:
    settings = task.settings
    weights = _checked(agent.weights, spec.weights, spec, "weights")
    scales = _checked(agent.scales, spec.scales, spec, "scales")
    torch.manual_seed(Streams(task.seed).key("network_weights") % 2**63)
    make = agent_named(agent.kind).make
    assert make is not None
    network = make(agent, Shape(spec.n_clusters, scales, weights))
    assert isinstance(network, ValueNetwork)
    of_outputs = weights if network.n_outputs > 1 else (1.0,)
    policy = ValuePolicy(network.to(task.device), of_outputs, agent.name, task.device)
    guide, world = named_rule(settings.guide, spec), task.entry.build(task.config, settings.lanes)
    return MonteCarloTrainer(world, policy, weights, settings, guide, task.seed), scales, weights


def _multi_target_trainer(task: Task, agent: MTDQNSettings, spec: WorldSpec) -> Built:
    """A trainer whose lanes play the same workload, in the world's members in turn or in drawn markets."""
    charged = tuple(
        charge or weight for charge, weight in zip(spec.objective_weights, spec.weights, strict=True)
    )
    weights = _checked(agent.weights, charged, spec, "weights")
    make = agent_named(agent.kind).make
    assert make is not None
    policy = make(agent, Shape(spec.n_clusters, spec.scales, weights))
    assert isinstance(policy, MTDQNPolicy)
    if task.start is not None:
        policy.network.load_state_dict(task.start["network"])
    entry, settings = task.entry, task.settings
    members = entry.members_of(task.config, "train")

    @cache
    def member(number: int) -> Any:
        return entry.build(members[number], settings.lanes)

    def world_of(number: int) -> tuple[Any, bool]:
        if settings.variety.share > 0.0:
            config = entry.drawn(task.config, settings.variety, task.seed, number)
            if config is not task.config:
                return entry.build(config, settings.lanes), True
        return member(number % len(members)), False

    return MultiTargetTrainer(world_of, policy, settings, task.seed, task.device), spec.scales, weights


def make_library_trainer(task: LibraryTask) -> LibraryTrainer:
    """The trainer for `task.agent.kind`.

    Raises:
        MissingExtraError: if its library is not installed.
        WorldError: for settings that cannot train.
        ValueError: if the kind is no library's.
    """
    kind = task.agent.kind
    require_library(kind)
    if kind == "sb3_dqn":
        from spotweave.training.adapters.sb3 import DQNTrainer

        return DQNTrainer(task)
    if kind in ("maskable_ppo", "decima"):
        from spotweave.training.adapters.sb3 import DecimaTrainer, MaskablePPOTrainer

        return MaskablePPOTrainer(task) if kind == "maskable_ppo" else DecimaTrainer(task)
    if kind == "rllib_dqn":
        from spotweave.training.adapters.rllib import RLlibDQNTrainer

        return RLlibDQNTrainer(task)
    raise ValueError(f"agent.kind is {kind!r}: no library trains it")
