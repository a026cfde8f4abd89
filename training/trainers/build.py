"""From an environment and settings to the trainer that they ask for."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch

from agents.factory import make_evolved, make_network
from agents.named import named_rule
from agents.rules import make_rule
from agents.rules.appraisal import Appraiser
from envs.environments import Environment
from envs.simulation.streams import Streams
from envs.simulation.world import BatchWorld, WorldSpec
from envs.variety import Variety
from training.adapters.build import make_library_trainer
from training.adapters.settings import LIBRARY_KINDS
from training.adapters.trainer import LibraryTask
from training.config import UsageError
from training.settings import AgentSettings, TrainerSettings
from training.trainers.counterfactual import CounterfactualTrainer
from training.trainers.evolution import EvolutionTrainer
from training.trainers.monte_carlo import MonteCarloTrainer
from training.trainers.trainer import Trainer

Built = tuple[Trainer, tuple[float, ...], tuple[float, ...]]
"""A trainer, the value scales and the weights it uses."""


def build_trainer(
    entry: Environment,
    config: Any,
    agent: AgentSettings,
    settings: TrainerSettings,
    seed: int,
    device: torch.device,
) -> Built:
    """A trainer with the worlds it plays in.

    Args:
        entry: the environment.
        config: its settings, of type `entry.config_class`.
        agent: what learns, its appraiser named (see `with_appraiser`).
        settings: how it learns.
        seed: root of all random streams of the run.
        device: where networks compute.

    Raises:
        UsageError, WorldError, ValueError: one line, for settings that do not go together.
    """
    if agent.learning == "evolution":
        _require_known_tasks(entry, agent.kind)
    if settings.variety.share > 0.0 and (entry.draw is None or agent.learning != "counterfactual"):
        raise UsageError(
            f"trainer.variety.share is {settings.variety.share}: expected 0, other worlds are drawn for "
            "+env=multicloud and agent.learning=counterfactual only"
        )
    if agent.kind in LIBRARY_KINDS:
        build = partial(entry.build, config, 1)
        task = LibraryTask(build, agent, settings, make_rule(settings.guide), seed, device)
        spec = entry.build(config, 1).spec
        return make_library_trainer(task), spec.scales, spec.objective_weights
    if agent.learning == "evolution":
        worlds = _evolution_worlds(entry, config, settings)
        policy = make_evolved(agent.kind, agent.pair_size, agent.name)
        trainer = EvolutionTrainer(worlds, policy, settings, seed)
        return trainer, worlds[0].spec.scales, worlds[0].spec.objective_weights
    if len(entry.members_of(config, "train")) > 1:
        raise UsageError(
            f"agent.learning={agent.learning} trains in one world: give env.clusters, or use agent=spotweave"
        )
    counterfactual = agent.learning == "counterfactual"
    lanes = CounterfactualTrainer.lanes_needed(settings) if counterfactual else settings.lanes
    built = make_trainer(entry.build(config, lanes), agent, settings, seed, device)
    learner = built[0]
    if settings.variety.share > 0.0 and isinstance(learner, CounterfactualTrainer):
        learner.draw_world = partial(_drawn_world, entry, config, settings.variety, seed, lanes)
    return built


def _drawn_world(
    entry: Environment, config: Any, variety: Variety, seed: int, lanes: int, number: int
) -> BatchWorld | None:
    """The world of a training round, or None for the configured one."""
    drawn = entry.drawn(config, variety, seed, number)
    return None if drawn is config else entry.build(drawn, lanes)


def _require_known_tasks(entry: Environment, kind: str) -> None:
    """Refuse a kind that learns by evolution, but not the tasks of this environment."""
    if kind not in entry.evolved:
        suited = ", ".join(entry.evolved) or "none"
        raise UsageError(
            f"agent.kind={kind} does not know the tasks of this environment: kinds that learn by evolution "
            f"here are {suited}"
        )


def _evolution_worlds(entry: Environment, config: Any, settings: TrainerSettings) -> list[BatchWorld]:
    """Worlds that share `settings.lanes` lanes evenly, two at least each: one per member, or per thread."""
    members = entry.members_of(config, "train")
    if len(members) == 1:
        members = members * settings.evolution.threads
    count = len(members)
    lanes = settings.lanes // (2 * count) * 2
    if lanes < 2 or lanes * count != settings.lanes:
        raise UsageError(
            f"trainer.lanes is {settings.lanes}: expected a multiple of {2 * count}, mirrored pairs in each "
            f"of {count} worlds"
        )
    return [entry.build(member, lanes) for member in members]


def make_trainer(
    world: BatchWorld, agent: AgentSettings, settings: TrainerSettings, seed: int, device: torch.device
) -> Built:
    """A trainer with a freshly initialised network; also the value scales and weights it uses."""
    spec = world.spec
    counterfactual = agent.learning == "counterfactual"
    weights = tuple(agent.weights) or (spec.objective_weights if counterfactual else spec.weights)
    scales = tuple(agent.scales) or spec.scales
    for name, given in (("weights", weights), ("scales", scales)):
        if len(given) != len(spec.components):
            raise ValueError(
                f"agent.{name} has {len(given)} numbers, expected one for each of "
                f"{', '.join(spec.components)}"
            )
    torch.manual_seed(Streams(seed).key("network_weights") % 2**63)
    network = make_network(dataclasses.asdict(agent), spec.n_clusters, scales, weights).to(device)
    kind = CounterfactualTrainer if counterfactual else MonteCarloTrainer
    guide = named_rule(settings.guide)
    appraiser = None if agent.appraiser == "none" else Appraiser(agent.appraiser)
    trainer = kind(
        world,
        network,
        weights,
        settings,
        guide,
        seed,
        agent.name,
        device,
        appraiser,
        agent.shortlist,
        agent.margin,
    )
    return trainer, scales, weights


def with_appraiser(agent: AgentSettings, entry: Environment) -> AgentSettings:
    """The agent with its appraising rule named: "auto" takes the world's, other networks have none."""
    if agent.kind != "spotweave":
        return dataclasses.replace(agent, appraiser="none", relative=False)
    named = entry.appraiser if agent.appraiser == "auto" else agent.appraiser
    # The costs of other rules are no money.
    return dataclasses.replace(agent, appraiser=named, relative=agent.relative and named == "expected_cost")


def with_rounds(agent: AgentSettings, spec: WorldSpec) -> AgentSettings:
    """The agent, its network made to see the columns of federated tasks where the world has such tasks."""
    if agent.kind != "spotweave" or not spec.federated:
        return agent
    return dataclasses.replace(agent, rounds=True)
