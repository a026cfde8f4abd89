"""Fits the networks of the agent `outcomes` to what became of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.outcomes.forward import HEADS
from agents.outcomes.network import OutcomeNetwork


class OutcomeReplay:
    """The latest decisions and their targets, drawn uniformly.

    Args:
        capacity: decisions kept.
        n_inputs: columns of what the networks are given.
        rng: draws samples.
        n_targets: of a decision.
        precision: of the targets; inputs are kept as float16.
    """

    def __init__(
        self,
        capacity: int,
        n_inputs: int,
        rng: np.random.Generator,
        n_targets: int = HEADS,
        precision: type[np.floating[Any]] = np.float16,
    ) -> None:
        self.features = np.zeros((capacity, n_inputs), np.float16)
        self.targets: NDArray[np.floating[Any]] = np.zeros((capacity, n_targets), precision)
        self.rng = rng
        self.size = self.next = 0

    def add(self, features: NDArray[np.float32], targets: NDArray[np.floating[Any]]) -> None:
        """Keep N decisions; the oldest make room."""
        rows = (self.next + np.arange(len(features))) % len(self.features)
        self.features[rows], self.targets[rows] = features, targets
        self.next = int((self.next + len(rows)) % len(self.features))
        self.size = min(len(self.features), self.size + len(rows))

    def sample(self, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Features (n, n_inputs) and targets (n, n_targets) of decisions drawn at random."""
        rows = self.rng.integers(0, self.size, n)
        features, targets = torch.from_numpy(self.features[rows]), torch.from_numpy(self.targets[rows])
        return features.to(device).float(), targets.to(device).float()

    def state_dict(self) -> dict[str, Any]:
        """What is kept, and where the draws stand."""
        return {
            "features": torch.from_numpy(self.features[: self.size].copy()),
            "targets": torch.from_numpy(self.targets[: self.size].copy()),
            "next": self.next,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.size, self.next = len(state["features"]), int(state["next"])
        self.features[: self.size] = state["features"].numpy()
        self.targets[: self.size] = state["targets"].numpy()
        self.rng.bit_generator.state = state["rng"]


class OutcomeRegression:
    """Adam on the squared error of the total and of each part, and on the cross-entropy of the misses.

    Args:
        networks: of the ensemble; each learns from batches of its own.
        learning_rate: at first.
    """

    def __init__(self, networks: Sequence[OutcomeNetwork], learning_rate: float) -> None:
        self.networks = list(networks)
        parameters = [parameter for network in self.networks for parameter in network.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate)

    def set_learning_rate(self, rate: float) -> None:
        """From now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def step(self, batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """(2,) losses (USD beyond what was expected, misses), mean over the networks, before the step."""
        losses = torch.stack(
            [
                _losses(network(features), targets)
                for network, (features, targets) in zip(self.networks, batches, strict=True)
            ]
        )
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(losses.sum())
        self.optimizer.step()
        return losses.detach().mean(0)

    def state_dict(self) -> dict[str, Any]:
        """Networks and optimizer."""
        return {
            "networks": [network.state_dict() for network in self.networks],
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        for network, weights in zip(self.networks, state["networks"], strict=True):
            network.load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    beyond = outputs[:, :3] - targets[:, :3]
    # What matters is the sum; the parts are learned as well, so that they can be weighed otherwise.
    usd = beyond.sum(1).square().mean() + 0.5 * beyond.square().sum(1).mean()
    has_deadline = ~targets[:, 3].isnan()
    share = targets[:, 3].nan_to_num()
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 3], share, reduction="none")
    return torch.stack([usd, (entropy * has_deadline).mean()])
