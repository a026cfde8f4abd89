"""Policies of library agents: new ones, and those loaded from a checkpoint without the library.

One of their networks is over sets of jobs and clusters, after Decima (Mao et al. 2019, SIGCOMM, section 5.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spotweave.agents.flat_policy import (
    FlatNetwork,
    FlatPolicy,
    Flattening,
    ScoreNetwork,
    n_features,
    n_jobs_of,
)
from spotweave.agents.settings import LibrarySettings
from spotweave.envs.simulation.snapshot import N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS
from spotweave.envs.simulation.world import WorldError, WorldSpec


def _layers(n_inputs: int, size: int, n_outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_inputs, size), nn.ReLU(), nn.Linear(size, n_outputs))


class SetNetwork(FlatNetwork):
    """Scores every (job, cluster or none) jointly; the order of jobs and of clusters makes no difference.

    Decima embeds nodes, jobs and all jobs, each as a network of the sum of what lies below it, and scores a
    node from the three. A job of ours is one node, so no messages pass between nodes; what Decima decides
    next, a limit of parallelism, is here the cluster, so that a node is a job on a cluster, or nowhere.

    Args:
        n_jobs: J', jobs shown.
        n_clusters: C.
        size: units of the embeddings and the hidden layers.
    """

    def __init__(self, n_jobs: int, n_clusters: int, size: int) -> None:
        super().__init__(n_features(n_jobs, n_clusters))
        self.n_jobs, self.n_clusters, self.size = n_jobs, n_clusters, size
        self.on_cluster = _layers(N_CLUSTER_FIELDS + N_JOB_FIELDS + N_PAIR_FIELDS, size, size)
        self.on_none = _layers(N_JOB_FIELDS, size, size)
        self.job = _layers(size, size, size)
        self.all_jobs = _layers(size, size, size)
        self.score = _layers(3 * size, size, 1)

    def forward(self, features: Tensor) -> Tensor:
        """(n, J' (C + 1)) scores of features (n, D)."""
        return self.scores_and_summary(features)[0]

    def scores_and_summary(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n, J' (C + 1)) scores and (n, size) the embedding of all jobs, of features (n, D)."""
        n, J, C = len(features), self.n_jobs, self.n_clusters
        sizes = [C * N_CLUSTER_FIELDS, J * N_JOB_FIELDS, J * C * N_PAIR_FIELDS, J * (C + 1)]
        flat_clusters, flat_jobs, flat_pairs, flat_mask = torch.split(features, sizes, 1)
        clusters = flat_clusters.view(n, 1, C, -1).expand(-1, J, -1, -1)
        jobs = flat_jobs.view(n, J, -1)
        pairs = flat_pairs.view(n, J, C, -1)
        # What is not valid, a job that is not there above all, is in no sum.
        valid = (flat_mask.view(n, J, C + 1, 1) > 0).to(features.dtype)

        placed = self.on_cluster(torch.cat([clusters, jobs[:, :, None].expand(-1, -1, C, -1), pairs], dim=-1))
        choices = torch.cat([placed, self.on_none(jobs)[:, :, None]], dim=2)
        each = self.job((valid * choices).sum(dim=2) / (C + 1))
        there = valid.amax(dim=2)
        everything = self.all_jobs((there * each).sum(dim=1) / J)
        context = torch.cat([each, everything[:, None].expand(-1, J, -1)], dim=-1)
        joined = torch.cat([choices, context[:, :, None].expand(-1, -1, C + 1, -1)], dim=-1)
        scores: Tensor = self.score(joined)
        return scores.view(n, -1), everything


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
