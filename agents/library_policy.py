"""Policies of library agents: new ones, and those loaded from a checkpoint without the library.

One of their networks is over sets of jobs and clusters, after Decima (Mao et al. 2019, SIGCOMM, section 5.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spotweave.agents.policy import Policy
from spotweave.agents.registry import LibrarySettings
from spotweave.envs.simulation.snapshot import (
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    FloatArray,
    Observation,
)
from spotweave.envs.simulation.world import WorldError, WorldSpec

# A trained library agent as a Policy: its network alone, without the library.


# The one way from an observation to the flat vector that library agents see.

CLIP = 6.0  # standardised features are cut off here, as inside our own networks
_SMALLEST_STD = 1e-6


def n_features(n_jobs: int, n_clusters: int) -> int:
    """D, the length of a flat vector for the first `n_jobs` jobs."""
    per_job = N_JOB_FIELDS + n_clusters * N_PAIR_FIELDS + n_clusters + 1
    return n_clusters * N_CLUSTER_FIELDS + n_jobs * per_job


def n_jobs_of(n_features: int, n_clusters: int) -> int:
    """J', of vectors of length `n_features`."""
    per_job = N_JOB_FIELDS + n_clusters * N_PAIR_FIELDS + n_clusters + 1
    return (n_features - n_clusters * N_CLUSTER_FIELDS) // per_job


def _pool(moments: NDArray[np.float64], n_jobs: int, n_clusters: int) -> NDArray[np.float64]:
    """(D,) moments, with each column's mean over the clusters, jobs or pairs in all of their places."""
    n_actions = n_jobs * (n_clusters + 1)
    parts, start = [], 0
    for count, columns in (
        (n_clusters, N_CLUSTER_FIELDS),
        (n_jobs, N_JOB_FIELDS),
        (n_jobs * n_clusters, N_PAIR_FIELDS),
        (n_actions, 1),
    ):
        block = moments[start : start + count * columns].reshape(count, columns)
        parts.append(np.tile(block.mean(axis=0), count))
        start += count * columns
    return np.concatenate(parts)


def signed_log_features(observations: Observation, n_jobs: int) -> FloatArray:
    """(n, D) sign(x) log(1 + |x|) of clusters, jobs, pairs and mask, for the first `n_jobs` jobs.

    The occupation history is left out (its mean is a column of `clusters`): it would be most of the vector.

    Args:
        observations: with one leading axis n.
        n_jobs: at most the window.
    """
    n_targets = observations["clusters"].shape[1] + 1
    parts = (
        observations["clusters"],
        observations["jobs"][:, :n_jobs],
        observations["pairs"][:, :n_jobs],
        observations["action_mask"][:, : n_jobs * n_targets].astype(np.float32),
    )
    flat = np.concatenate([part.reshape(part.shape[0], -1) for part in parts], axis=1)
    logs: FloatArray = np.copysign(np.log1p(np.abs(flat)), flat)
    return logs


@dataclass(frozen=True)
class Flattening:
    """Observation -> (D,) float32 within [-CLIP, CLIP]: signed logarithms, standardised.

    The last `n_actions` are the action mask, which is only scaled: greater than 0 where an action is valid.
    """

    n_jobs: int  # jobs shown
    n_clusters: int  # C
    mean: FloatArray  # (D,) means of the signed logarithms
    std: FloatArray  # (D,) their standard deviations, 1 where a feature was constant

    @classmethod
    def fit(cls, features: FloatArray, n_jobs: int, n_clusters: int, pooled: bool = False) -> Flattening:
        """Statistics of `signed_log_features` rows (n, D).

        Args:
            features: the rows.
            n_jobs: J'.
            n_clusters: C.
            pooled: one mean and deviation per column for all clusters, jobs or pairs, which a network that is
                the same for all of them needs; else one for each number of the vector.
        """
        mean = features.mean(axis=0, dtype=np.float64)
        std = features.std(axis=0, dtype=np.float64)
        if pooled:
            squares = (features.astype(np.float64) ** 2).mean(axis=0)
            mean = _pool(mean, n_jobs, n_clusters)
            std = np.sqrt(np.maximum(0.0, _pool(squares, n_jobs, n_clusters) - mean**2))
        n_actions = n_jobs * (n_clusters + 1)
        mean[-n_actions:], std[-n_actions:] = 0.0, 1.0
        std = np.where(std > _SMALLEST_STD, std, 1.0)
        return cls(n_jobs, n_clusters, mean.astype(np.float32), std.astype(np.float32))

    @property
    def n_actions(self) -> int:
        """Actions on the jobs shown: the first of the world's own numbers, in order."""
        return self.n_jobs * (self.n_clusters + 1)

    def features(self, observations: Observation) -> FloatArray:
        """(n, D) for observations with one leading axis n."""
        scaled = (signed_log_features(observations, self.n_jobs) - self.mean) / self.std
        clipped: FloatArray = np.clip(scaled, -CLIP, CLIP)
        return clipped

    def mask(self, observations: Observation) -> NDArray[np.bool_]:
        """(n, n_actions) which actions are valid; the first job is there, so at least one is."""
        valid: NDArray[np.bool_] = observations["action_mask"][:, : self.n_actions] != 0
        return valid


Layers = Sequence[tuple[Tensor, Tensor]]
"""Weight (out, in) and bias (out,) of each linear layer, first to last."""


def as_linears(layers: Layers) -> dict[str, Tensor]:
    """Layers under the names that they have in a `ScoreNetwork`."""
    named = [
        (f"linears.{k}.{part}", tensor)
        for k, layer in enumerate(layers)
        for part, tensor in zip(("weight", "bias"), layer, strict=True)
    ]
    return dict(named)


class FlatNetwork(nn.Module):
    """What scores actions from flat features; the statistics of the flattening are part of its state.

    Args:
        n_inputs: D.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_inputs))
        self.register_buffer("std", torch.ones(n_inputs))


def linear_layers(n_inputs: int, hidden_sizes: Sequence[int], n_actions: int) -> nn.ModuleList:
    """Untrained layers."""
    return nn.ModuleList(nn.Linear(a, b) for a, b in pairwise([n_inputs, *hidden_sizes, n_actions]))


def scored(linears: nn.ModuleList, features: Tensor) -> Tensor:
    """What the last of `linear_layers` gives, with ReLU between them."""
    *hidden, last = linears
    for linear in hidden:
        features = torch.relu(linear(features))
    scores: Tensor = last(features)
    return scores


class ScoreNetwork(FlatNetwork):
    """Linear layers with ReLU between them: one score per action (a value, or a logit).

    Args:
        n_inputs: D.
        hidden_sizes: units of the hidden layers.
        n_actions: scores.
    """

    def __init__(self, n_inputs: int, hidden_sizes: Sequence[int], n_actions: int) -> None:
        super().__init__(n_inputs)
        self.linears = linear_layers(n_inputs, hidden_sizes, n_actions)

    def forward(self, features: Tensor) -> Tensor:
        """(n, n_actions) scores of features (n, D)."""
        return scored(self.linears, features)


class FlatPolicy(Policy):
    """The valid action with the highest score: masks are applied whether or not the library knows them.

    Args:
        network: the scores.
        flattening: what it was trained with; its statistics go into the network.
        name: shown in tables.
        device: where the network computes.
    """

    def __init__(
        self, network: FlatNetwork, flattening: Flattening, name: str, device: torch.device | str = "cpu"
    ) -> None:
        self.name = name
        self.device = torch.device(device)
        network.mean.copy_(torch.from_numpy(flattening.mean))
        network.std.copy_(torch.from_numpy(flattening.std))
        self.network = network.to(self.device)
        self.flattening = flattening

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights of the library's network, under the names of this policy's.

        Raises:
            RuntimeError: if it has other layers.
        """
        self.network.load_state_dict({"mean": self.network.mean, "std": self.network.std, **weights})

    def scores(self, observations: Observation, lanes: NDArray[np.int64]) -> Tensor:
        """(n, J' * (C + 1)) scores, invalid actions included."""
        scores: Tensor = self.network(self.features(observations))
        return scores

    def features(self, observations: Observation) -> Tensor:
        """(n, D) what the network sees."""
        return torch.from_numpy(self.flattening.features(observations)).to(self.device)

    @torch.inference_mode()
    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The valid action with the highest score, per row."""
        valid = torch.from_numpy(self.flattening.mask(observations)).to(self.device)
        best = self.scores(observations, lanes).masked_fill(~valid, -torch.inf).argmax(dim=1)
        return best.cpu().numpy().astype(np.int64)


def _layers(n_inputs: int, size: int, n_outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_inputs, size), nn.ReLU(), nn.Linear(size, n_outputs))


# What libraries train, and how it is loaded.


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
