"""Policies of library agents: new ones, and those loaded from a checkpoint without the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from agents.flat_policy import FlatPolicy, Flattening, ScoreNetwork, n_features, n_jobs_of
from agents.set_network import SetNetwork
from agents.settings import LibrarySettings
from envs.simulation.world import WorldError, WorldSpec


def new_policy(
    agent: LibrarySettings, flattening: Flattening, device: torch.device | str = "cpu"
) -> FlatPolicy:
    """A policy with untrained weights, and the network that `agent.kind` has."""
    size = n_features(flattening.n_jobs, flattening.n_clusters)
    if agent.kind == "decima":
        sets = SetNetwork(flattening.n_jobs, flattening.n_clusters, agent.embedding_size)
        return FlatPolicy(sets, flattening, agent.name, device)
    network = ScoreNetwork(size, agent.hidden_sizes, flattening.n_actions)
    return FlatPolicy(network, flattening, agent.name, device)


def load_library_policy(
    state: Mapping[str, Any], spec: WorldSpec, weights: Sequence[float] | None, device: str
) -> FlatPolicy:
    """The policy of a checkpoint whose agent kind is a library's.

    Args:
        state: the checkpoint; the caller has seen that it fits the world's name and clusters.
        spec: the world it shall act in.
        weights: scalarisation weights; a library learned the reward itself, so only None or empty will do.
        device: where it computes.

    Raises:
        WorldError: if weights were given, or the world shows fewer jobs than the network wants.
    """
    agent = LibrarySettings(**state["agent"])
    if weights and list(weights) != state["weights"]:
        raise WorldError(
            f"{agent.name} learned the reward itself: its weights cannot be changed without retraining"
        )
    mean, std = state["network"]["mean"], state["network"]["std"]
    n_jobs = n_jobs_of(len(mean), spec.n_clusters)
    if n_jobs > spec.window:
        raise WorldError(
            f"{agent.name} looks at {n_jobs} jobs, this world shows {spec.window}: "
            "widen the window or train again"
        )
    policy = new_policy(agent, Flattening(n_jobs, spec.n_clusters, mean.numpy(), std.numpy()), device)
    policy.network.load_state_dict(state["network"])
    return policy
