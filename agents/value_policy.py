"""The greedy policy of a value network: scalarise the components, take the best valid choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.networks.base import NetworkInput, ValueNetwork
from agents.policy import Policy
from agents.rules.appraisal import Appraiser
from envs.simulation.snapshot import FloatArray, JobField, Observation


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
        appraiser: rule whose expected costs the network takes as input, if it does.
        shortlist: with an appraiser, only this many of its cheapest clusters are chosen among; 0: all.

    Raises:
        ValueError: if a weight is not finite or their number does not fit the network.
    """

    def __init__(
        self,
        network: ValueNetwork,
        weights: Sequence[float],
        name: str,
        device: torch.device | str = "cpu",
        appraiser: Appraiser | None = None,
        shortlist: int = 0,
    ) -> None:
        self.name = name
        self.shortlist = shortlist
        self.appraiser = appraiser
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
        return self._values(observations, self._costs(observations))

    def choices(self, observations: Observation) -> NDArray[np.bool_]:
        """(n, J', C + 1) what this policy chooses among: valid, on the shortlist of its appraising rule.

        Waiting is worth next to nothing for the moment that it lasts, and what it costs adds up unseen: an
        error of cents in its value would put a job off for days. So a job that does not run waits only if the
        appraising rule expects no valid cluster to be cheaper than waiting.
        """
        return self._choices(observations, self._costs(observations))

    @torch.inference_mode()
    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The choice with the largest scalarised value, per row."""
        costs = self._costs(observations)
        scores = (self._values(observations, costs) @ self.weights).flatten(1)
        among = torch.from_numpy(self._choices(observations, costs)).to(self.device).flatten(1)
        best = scores.masked_fill(~among, -torch.inf).argmax(dim=1)
        return best.cpu().numpy().astype(np.int64)

    def _costs(self, observations: Observation) -> FloatArray | None:
        if self.appraiser is None:
            return None
        return self.appraiser(observations, _jobs_present(observations))

    def _values(self, observations: Observation, costs: FloatArray | None) -> Tensor:
        self.network.eval()
        inputs = to_input(observations, self.device, _jobs_present(observations))
        if costs is not None:
            inputs = dataclasses.replace(inputs, appraisal=torch.from_numpy(costs).to(self.device))
        return self.network.values(inputs)

    def _choices(self, observations: Observation, costs: FloatArray | None) -> NDArray[np.bool_]:
        n, n_clusters = observations["clusters"].shape[:2]
        present = _jobs_present(observations)
        valid = observations["action_mask"].reshape(n, -1, n_clusters + 1)[:, :present] > 0
        if costs is None:
            return valid
        there = np.where(valid[..., :-1], costs[..., :-1], np.inf)
        ranked = np.sort(there, axis=-1)
        kept = valid[..., :-1]
        if 0 < self.shortlist < n_clusters:
            kept = kept & (there <= ranked[..., self.shortlist - 1 : self.shortlist])
        runs = observations["jobs"][:, :present, JobField.RUNNING] > 0
        waits = valid[..., -1] & (runs | (costs[..., -1] <= ranked[..., 0]))
        return np.concatenate([kept, waits[..., None]], axis=-1)


def _jobs_present(observations: Observation) -> int:
    """The largest number of jobs present in a row, at least 1."""
    return max(1, int((observations["jobs"][..., JobField.PRESENT] > 0).sum(-1).max(initial=1)))
