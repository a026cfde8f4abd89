"""A trained library agent as a Policy: its network alone, without the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.flattening import Flattening
from agents.policy import Policy
from envs.simulation.snapshot import Observation

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
        self,
        network: FlatNetwork,
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
