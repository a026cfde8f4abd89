"""The greedy policy of a value network: scalarise the components, take the best valid choice."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.networks.base import NetworkInput, ValueNetwork
from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import Observation

# Policies whose values have components, which can be weighed otherwise without training again.


class WeighedPolicy(Policy):
    """Ranks choices by a weighted sum of K value components."""

    @property
    @abstractmethod
    def value_weights(self) -> tuple[float, ...]:
        """(K,) weights of the components."""

    @abstractmethod
    def set_weights(self, weights: Sequence[float]) -> None:
        """Change the weights. Raises ValueError for another number of them, or one that is not finite."""

    @abstractmethod
    def value_table(self, observations: Observation) -> Floats:
        """(n, J', C + 1, K) components in physical units; NaN for choices that the policy did not weigh."""


def checked_weights(weights: Sequence[float], count: int) -> tuple[float, ...]:
    """The weights of `count` components as floats.

    Raises:
        ValueError: for another number of weights, or one that is not finite.
    """
    if len(weights) != count:
        raise ValueError(f"{len(weights)} value weights given, but the policy has {count} value components")
    if not np.isfinite(np.asarray(weights, np.float64)).all():
        raise ValueError(f"value weights must be finite numbers, got {list(weights)}")
    return tuple(float(weight) for weight in weights)


def to_input(observations: Observation, device: torch.device, n_jobs: int | None = None) -> NetworkInput:
    """Observation arrays with a leading batch axis as tensors, cut to the first `n_jobs` window rows."""
    return NetworkInput(
        clusters=_tensor(observations["clusters"], device),
        occupation=_tensor(observations["occupation"], device),
        jobs=_tensor(observations["jobs"][:, :n_jobs], device),
        pairs=_tensor(observations["pairs"][:, :n_jobs], device),
    )


class ValuePolicy(WeighedPolicy):
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
        checked = checked_weights(weights, self.network.n_outputs)
        self.weights = torch.tensor(checked, dtype=torch.float32).to(self.device)

    @property
    def value_weights(self) -> tuple[float, ...]:
        """(K,) scalarisation weights."""
        return tuple(self.weights.tolist())

    def value_table(self, observations: Observation) -> Floats:
        """(n, J', C + 1, K) values in physical units."""
        return self.component_values(observations).cpu().numpy().astype(np.float64)

    @torch.inference_mode()
    def component_values(self, observations: Observation) -> Tensor:
        """(n, J', C + 1, K) values in physical units; J' is the largest number of jobs present."""
        self._evaluate()
        present = _jobs_present(observations)
        return self.network.values(to_input(observations, self.device, present))

    @torch.inference_mode()
    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """The valid choice with the largest scalarised value, per row."""
        scores = (self.component_values(observations) @ self.weights).flatten(1)
        mask = observations["action_mask"][:, : scores.shape[1]] > 0
        return _first_best(scores, torch.from_numpy(mask).to(self.device))

    def _evaluate(self) -> None:
        # Walking over all modules takes a noticeable part of one decision.
        if self.network.training:
            self.network.eval()


def _tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(device)


def _first_best(scores: Tensor, among: Tensor) -> Ints:
    best = scores.masked_fill(~among, -torch.inf).argmax(dim=1)
    return best.cpu().numpy().astype(np.int64)


def _jobs_present(observations: Observation) -> int:
    """The largest number of jobs present in a row, at least 1."""
    return max(1, int((observations["jobs"][..., col.PRESENT] > 0).sum(-1).max(initial=1)))
