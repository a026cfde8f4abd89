"""From an environment and settings to the trainer that they ask for."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch

from agents.named import named_rule
from agents.networks.base import ValueNetwork
from agents.registry import Shape, agent_named
from agents.rules import make_rule
from agents.rules.appraisal import Appraiser
from agents.settings import AgentSettings, LibrarySettings, PairwiseSettings, ValueSettings
from agents.vector_policy import VectorPolicy
from envs.environments import Environment
from envs.simulation.streams import Streams
from envs.simulation.world import BatchWorld, WorldSpec
from training.adapters.build import make_library_trainer
from training.adapters.trainer import LibraryTask
from training.config import UsageError
from training.trainers.counterfactual import CounterfactualTrainer
from training.trainers.evolution import EvolutionTrainer
from training.trainers.monte_carlo import MonteCarloTrainer
from training.trainers.trainer import Learner, Task, Trainer

Built = tuple[Trainer, tuple[float, ...], tuple[float, ...]]
"""A trainer, the value scales and the weights it uses."""


def build_trainer(task: Task) -> Built:
    """A trainer with the worlds it plays in.

    Raises:
        UsageError, WorldError, ValueError: one line, for settings that do not go together.
    """
    entry, agent, settings = task.entry, task.agent, task.settings
    described = agent_named(agent.kind)
    counterfactual = isinstance(agent, ValueSettings) and agent.learning == "counterfactual"
    if settings.variety.share > 0.0 and (entry.draw is None or not counterfactual):
        raise UsageError(
            f"trainer.variety.share is {settings.variety.share}: expected 0, other worlds are drawn for "
            "+env=multicloud and agent.learning=counterfactual only"
        )
    spec = entry.build(entry.members_of(task.config, "train")[0], 2).spec
    if described.worlds is not None and spec.name not in described.worlds:
        raise UsageError(
            f"agent={agent.kind} does not know the tasks of this environment: it knows those of "
            f"{' and '.join(described.worlds)}; try agent={entry.default_agent}"
        )
    if described.trainer is not None:
        return described.trainer(task), spec.scales, spec.objective_weights
    if isinstance(agent, LibrarySettings):
        build = partial(entry.build, task.config, 1)
        wanted = LibraryTask(build, agent, settings, make_rule(settings.guide), task.seed, task.device)
        return make_library_trainer(wanted), spec.scales, spec.objective_weights
    assert described.make is not None
    if not isinstance(agent, ValueSettings):
        policy = described.make(agent, Shape(spec.n_clusters, spec.scales, spec.objective_weights))
        assert isinstance(policy, VectorPolicy)
        trainer = EvolutionTrainer(_evolution_worlds(task), policy, settings, task.seed)
        return trainer, spec.scales, spec.objective_weights
    if len(entry.members_of(task.config, "train")) > 1:
        raise UsageError(
            f"agent={agent.kind} trains in one world: give env.clusters, or use agent={entry.default_agent}"
        )
    return _value_trainer(task, agent, spec)


def _value_trainer(task: Task, agent: ValueSettings, spec: WorldSpec) -> Built:
    """A trainer with a freshly initialised network."""
    settings = task.settings
    counterfactual = agent.learning == "counterfactual"
    weights = tuple(agent.weights) or (spec.objective_weights if counterfactual else spec.weights)
    scales = tuple(agent.scales) or spec.scales
    for name, given in (("weights", weights), ("scales", scales)):
        if len(given) != len(spec.components):
            raise ValueError(
                f"agent.{name} has {len(given)} numbers, expected one for each of "
                f"{', '.join(spec.components)}"
            )
    torch.manual_seed(Streams(task.seed).key("network_weights") % 2**63)
    make = agent_named(agent.kind).make
    assert make is not None
    network = make(agent, Shape(spec.n_clusters, scales, weights))
    assert isinstance(network, ValueNetwork)
    learner = Learner(network.to(task.device), weights, agent.name, task.device)
    if isinstance(agent, PairwiseSettings) and agent.appraiser != "none":
        appraiser = Appraiser(agent.appraiser)
        learner = dataclasses.replace(
            learner, appraiser=appraiser, shortlist=agent.shortlist, margin=agent.margin
        )
    guide = named_rule(settings.guide)
    if not counterfactual:
        world = task.entry.build(task.config, settings.lanes)
        return MonteCarloTrainer(world, learner, settings, guide, task.seed), scales, weights
    lanes = CounterfactualTrainer.lanes_needed(settings)
    trainer = CounterfactualTrainer(task.entry.build(task.config, lanes), learner, settings, guide, task.seed)
    if settings.variety.share > 0.0:
        trainer.draw_world = partial(_drawn_world, task, lanes)
    return trainer, scales, weights


def _drawn_world(task: Task, lanes: int, number: int) -> BatchWorld | None:
    """The world of a training round, or None for the configured one."""
    drawn = task.entry.drawn(task.config, task.settings.variety, task.seed, number)
    return None if drawn is task.config else task.entry.build(drawn, lanes)


def _evolution_worlds(task: Task) -> list[BatchWorld]:
    """Worlds that share `settings.lanes` lanes evenly, two at least each: one per member, or per thread."""
    settings = task.settings
    members: list[Any] = task.entry.members_of(task.config, "train")
    if len(members) == 1:
        members = members * settings.evolution.threads
    count = len(members)
    lanes = settings.lanes // (2 * count) * 2
    if lanes < 2 or lanes * count != settings.lanes:
        raise UsageError(
            f"trainer.lanes is {settings.lanes}: expected a multiple of {2 * count}, mirrored pairs in each "
            f"of {count} worlds"
        )
    return [task.entry.build(member, lanes) for member in members]


def suited(agent: AgentSettings, entry: Environment, spec: WorldSpec) -> AgentSettings:
    """The agent with what depends on the world filled in.

    The appraising rule "auto" becomes the world's, and the network sees the columns of federated tasks where
    the world has such tasks.
    """
    if not isinstance(agent, PairwiseSettings):
        return agent
    named = entry.appraiser if agent.appraiser == "auto" else agent.appraiser
    return dataclasses.replace(
        agent,
        appraiser=named,
        # The costs of other rules are no money.
        relative=agent.relative and named == "expected_cost",
        rounds=agent.rounds or spec.federated,
    )
