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
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, Observation


def to_input(observations: Observation, device: torch.device, n_jobs: int | None = None) -> NetworkInput:
    """Observation arrays with a leading batch axis as tensors, cut to the first `n_jobs` window rows."""
    return NetworkInput(
        clusters=_tensor(observations["clusters"], device),
        occupation=_tensor(observations["occupation"], device),
        jobs=_tensor(observations["jobs"][:, :n_jobs], device),
        pairs=_tensor(observations["pairs"][:, :n_jobs], device),
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
        margin: with an appraiser, a choice other than its cheapest must be better by this much (in units of
            the objective). The best of several noisy estimates is an overestimate; the margin answers that.

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
        margin: float = 0.0,
    ) -> None:
        self.name = name
        self.margin = margin
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
        self._evaluate()
        present = _jobs_present(observations)
        inputs = to_input(observations, self.device, present)
        if self.appraiser is not None:
            costs = self.appraiser(observations, present)
            inputs = dataclasses.replace(inputs, appraisal=_tensor(costs, self.device))
        return self.network.values(inputs)

    def choices(self, observations: Observation) -> NDArray[np.bool_]:
        """(n, J', C + 1) what this policy chooses among: valid, on the shortlist of its appraising rule.

        Waiting is worth next to nothing for the moment that it lasts, and what it costs adds up unseen: an
        error of cents in its value would put a job off for days. So a job that does not run waits only if the
        appraising rule expects no valid cluster to be cheaper than waiting.
        """
        return self._among(observations, self._costs(observations))

    def _among(self, observations: Observation, costs: FloatArray | None) -> NDArray[np.bool_]:
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
        runs = observations["jobs"][:, :present, col.RUNNING] > 0
        waits = valid[..., -1] & (runs | (costs[..., -1] <= ranked[..., 0]))
        return np.concatenate([kept, waits[..., None]], axis=-1)

    @torch.inference_mode()
    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The choice with the largest scalarised value, per row."""
        costs = self._costs(observations)
        among = self._among(observations, costs)
        if costs is None:
            scores = (self.component_values(observations) @ self.weights).flatten(1)
            return _first_best(scores, torch.from_numpy(among).to(self.device).flatten(1))
        return self._act_on_shortlists(observations, among, costs)

    def _act_on_shortlists(
        self, observations: Observation, among: NDArray[np.bool_], costs: FloatArray
    ) -> NDArray[np.int64]:
        """As above, computing only what may be chosen: one network row per job that is present."""
        n, present, n_targets = among.shape
        rows, jobs = np.nonzero(among.any(-1))
        kept = among[rows, jobs]
        width = int(kept.sum(-1).max())
        order = np.argsort(~kept, axis=-1, kind="stable")[:, :width]  # what may be chosen comes first
        batch = NetworkInput(
            clusters=_tensor(observations["clusters"][rows], self.device),
            occupation=_tensor(observations["occupation"][rows], self.device),
            jobs=_tensor(observations["jobs"][rows, jobs][:, None], self.device),
            pairs=_tensor(observations["pairs"][rows, jobs][:, None], self.device),
            appraisal=_tensor(costs[rows, jobs][:, None], self.device),
        )
        self._evaluate()
        values = self.network.choice_values(batch, torch.from_numpy(order).to(self.device))
        scores = (values * self.network.output_scales) @ self.weights
        full = np.full((n, present, n_targets), -np.inf, np.float32)
        chosen = np.where(np.take_along_axis(kept, order, 1), scores.cpu().numpy(), -np.inf)
        shown_costs = np.where(kept, costs[rows, jobs], np.inf)
        chosen += self.margin * (order == shown_costs.argmin(-1)[:, None])
        full[rows[:, None], jobs[:, None], order] = chosen
        best: NDArray[np.int64] = full.reshape(n, -1).argmax(1).astype(np.int64)
        return best

    def _evaluate(self) -> None:
        # Walking over all modules takes a noticeable part of one decision.
        if self.network.training:
            self.network.eval()

    def _costs(self, observations: Observation) -> FloatArray | None:
        if self.appraiser is None:
            return None
        return self.appraiser(observations, _jobs_present(observations))


def _tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(device)


def _first_best(scores: Tensor, among: Tensor) -> NDArray[np.int64]:
    best = scores.masked_fill(~among, -torch.inf).argmax(dim=1)
    return best.cpu().numpy().astype(np.int64)


def _jobs_present(observations: Observation) -> int:
    """The largest number of jobs present in a row, at least 1."""
    return max(1, int((observations["jobs"][..., col.PRESENT] > 0).sum(-1).max(initial=1)))
