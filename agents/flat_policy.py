"""A trained library agent as a Policy: its network alone, without the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.flattening import Flattening, n_features
from agents.policy import Policy
from envs.simulation.snapshot import Observation
from envs.simulation.world import WorldError, WorldSpec

Layers = Sequence[tuple[Tensor, Tensor]]
"""Weight (out, in) and bias (out,) of each linear layer, first to last."""


class ScoreNetwork(nn.Module):
    """Linear layers with ReLU between them: one score per action (a value, or a logit).

    The statistics of the flattening travel in it, so that its state is all a checkpoint needs.

    Args:
        n_inputs: D.
        hidden_sizes: units of the hidden layers.
        n_actions: scores.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, n_inputs: int, hidden_sizes: Sequence[int], n_actions: int) -> None:
        super().__init__()
        sizes = [n_inputs, *hidden_sizes, n_actions]
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.register_buffer("mean", torch.zeros(n_inputs))
        self.register_buffer("std", torch.ones(n_inputs))

    def forward(self, features: Tensor) -> Tensor:
        """(n, n_actions) scores of features (n, D)."""
        *hidden, last = self.linears
        for linear in hidden:
            features = torch.relu(linear(features))
        scores: Tensor = last(features)
        return scores

    @torch.no_grad()
    def take(self, layers: Layers) -> None:
        """Copy the weights of the library's network.

        Raises:
            ValueError: if it has other layers.
        """
        shapes = [tuple(weight.shape) for weight, _ in layers]
        expected = [tuple(linear.weight.shape) for linear in self._linears()]
        if shapes != expected:
            raise ValueError(f"the library's network has layers {shapes}, expected {expected}")
        for linear, (weight, bias) in zip(self._linears(), layers, strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)

    def _linears(self) -> list[nn.Linear]:
        return [linear for linear in self.linears if isinstance(linear, nn.Linear)]


class FlatPolicy(Policy):
    """The valid action with the highest score: masks are applied whether or not the library knows them.

    Args:
        network: the scores.
        flattening: what it was trained with; its statistics go into the network.
        name: shown in tables.
        device: where the network computes.
    """

    def __init__(
        self,
        network: ScoreNetwork,
        flattening: Flattening,
        name: str,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name = name
        self.device = torch.device(device)
        network.mean.copy_(torch.from_numpy(flattening.mean))
        network.std.copy_(torch.from_numpy(flattening.std))
        self.network = network.to(self.device)
        self.flattening = flattening

    @torch.inference_mode()
    def scores(self, observations: Observation) -> Tensor:
        """(n, J' * (C + 1)) scores, invalid actions included."""
        features = torch.from_numpy(self.flattening.features(observations))
        scores: Tensor = self.network(features.to(self.device))
        return scores

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The valid action with the highest score, per row."""
        valid = torch.from_numpy(self.flattening.mask(observations)).to(self.device)
        best = self.scores(observations).masked_fill(~valid, -torch.inf).argmax(dim=1)
        return best.cpu().numpy().astype(np.int64)


def new_policy(
    flattening: Flattening, hidden_sizes: Sequence[int], name: str, device: torch.device | str = "cpu"
) -> FlatPolicy:
    """A policy with untrained weights."""
    size = n_features(flattening.n_jobs, flattening.n_clusters)
    network = ScoreNetwork(size, hidden_sizes, flattening.n_actions)
    return FlatPolicy(network, flattening, name, device)


def load_flat_policy(
    state: Mapping[str, Any], spec: WorldSpec, weights: Sequence[float] | None, device: str
) -> FlatPolicy:
    """The policy of a checkpoint whose agent kind is a library's; no library is needed.

    Args:
        state: the checkpoint; the caller has seen that it fits the world's name and clusters.
        spec: the world it shall act in.
        weights: scalarisation weights; a library learned the reward itself, so only None or empty will do.
        device: where it computes.

    Raises:
        WorldError: if weights were given, or the world shows fewer jobs than the network wants.
    """
    if weights and list(weights) != state["weights"]:
        raise WorldError(
            f"{state['agent']['name']} learned the reward itself: its weights cannot be changed "
            "without retraining"
        )
    tensors: dict[str, Tensor] = state["network"]
    n_linears = sum(name.endswith(".weight") for name in tensors)
    sizes = [len(tensors[f"linears.{k}.bias"]) for k in range(n_linears)]
    n_jobs = sizes[-1] // (spec.n_clusters + 1)
    if n_jobs > spec.window:
        raise WorldError(
            f"{state['agent']['name']} looks at {n_jobs} jobs, this world shows {spec.window}: "
            "widen the window or train again"
        )
    flattening = Flattening(n_jobs, spec.n_clusters, tensors["mean"].numpy(), tensors["std"].numpy())
    policy = new_policy(flattening, sizes[:-1], state["agent"]["name"], device)
    policy.network.load_state_dict(tensors)
    return policy
