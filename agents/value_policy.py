"""The greedy policy of a value network: scalarise the components, take the best valid choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.networks.base import NetworkInput, ValueNetwork
from agents.policy import Policy
from envs.simulation.snapshot import JobField, Observation


def to_input(observations: Observation, device: torch.device, n_jobs: int | None = None) -> NetworkInput:
    """Observation arrays with a leading batch axis as tensors, cut to the first `n_jobs` window rows."""

    def tensor(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(device)

    return NetworkInput(
        clusters=tensor(observations["clusters"]),
        occupation=tensor(observations["occupation"]),
        jobs=tensor(observations["jobs"][:, :n_jobs]),
        pairs=tensor(observations["pairs"][:, :n_jobs]),
    )


class ValuePolicy(Policy):
    """Acts greedily on a linear scalarisation of predicted value components (Liu 2022, section 5.3.3).

    The outer loop over buffered jobs (section 5.3.4, "multi-job selection") is the job axis of the network.

    Args:
        network: predicts the components; a network with one output predicts the scalarised value itself.
        weights: (K,) scalarisation weights; they may be changed at any time, without retraining.
        name: shown in tables.
        device: where the network lives.

    Raises:
        ValueError: if a weight is not finite or their number does not fit the network.
    """

    def __init__(
        self, network: ValueNetwork, weights: Sequence[float], name: str, device: torch.device | str = "cpu"
    ) -> None:
        self.name = name
        self.device = torch.device(device)
        self.network = network.to(self.device)
        self.set_weights(weights)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Change the scalarisation weights, K of them."""
        values = torch.tensor(list(weights), dtype=torch.float32)
        if len(values) != self.network.n_outputs:
            raise ValueError(
                f"{len(values)} value weights given, but the policy has "
                f"{self.network.n_outputs} value components"
            )
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"value weights must be finite numbers, got {list(weights)}")
        self.weights = values.to(self.device)

    @torch.inference_mode()
    def component_values(self, observations: Observation) -> Tensor:
        """(n, J', C + 1, K) values in physical units; J' is the largest number of jobs present."""
        present = int((observations["jobs"][..., JobField.PRESENT] > 0).sum(-1).max(initial=1))
        self.network.eval()
        return self.network.values(to_input(observations, self.device, max(1, present)))

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The valid choice with the largest scalarised value, per row."""
        scores = (self.component_values(observations) @ self.weights).flatten(1)
        valid = torch.from_numpy(observations["action_mask"][:, : scores.shape[1]] > 0).to(self.device)
        best = scores.masked_fill(~valid, -torch.inf).argmax(dim=1)
        return best.cpu().numpy().astype(np.int64)
