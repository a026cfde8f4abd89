"""Value networks of Liu 2022: value components of every (job, cluster) choice, and the greedy policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import HISTORY_STEPS, N_CLUSTER_FIELDS, N_PAIR_FIELDS, Observation

# The greedy policy of a value network: scalarise the components, take the best valid choice.


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


# What every value network has in common.


@dataclass(frozen=True)
class NetworkInput:
    """One batch of decisions as tensors."""

    clusters: Tensor  # (B, C, N_CLUSTER_FIELDS)
    occupation: Tensor  # (B, C, HISTORY_STEPS)
    jobs: Tensor  # (B, J, N_JOB_FIELDS)
    pairs: Tensor  # (B, J, C, N_PAIR_FIELDS)


class ValueNetwork(nn.Module, ABC):
    """Maps decisions to the (scaled) value components of every choice.

    Attributes:
        n_outputs: K value components, or 1 for a network that learns the scalarised value.
    """

    output_scales: Tensor  # (n_outputs,) physical value = output * scale

    def __init__(self, output_scales: tuple[float, ...]) -> None:
        super().__init__()
        self.n_outputs = len(output_scales)
        self.register_buffer("output_scales", torch.tensor(output_scales, dtype=torch.float32))

    @abstractmethod
    def fit_scalers(self, batch: NetworkInput) -> None:
        """Fit the input normalisation on the decisions of the first episodes."""

    @abstractmethod
    def forward(self, batch: NetworkInput) -> Tensor:
        """(B, J, C + 1, n_outputs) scaled values; index C is "none for now"."""

    def values(self, batch: NetworkInput) -> Tensor:
        """Values in physical units: forward times `output_scales`."""
        scaled: Tensor = self(batch)
        return scaled * self.output_scales


def request_distribution(jobs: Tensor, pairs: Tensor) -> Tensor:
    """(B, J, C, 10) request of each of the ten slots (Liu 2022, section 5.3.2), peaks last.

    Observations carry mode, peak and number of peak slots, which is the same distribution.
    """
    peaks = jobs[..., col.PEAK_SLOTS, None, None]
    slots = torch.arange(10, device=jobs.device)
    is_peak = slots >= 10 - peaks
    request = pairs[..., col.REQUEST, None]
    peak = pairs[..., col.PEAK_REQUEST, None]
    return torch.where(is_peak, peak, request)


# Normalisation inside the networks: observations stay in physical units everywhere else.


class FeatureScaler(nn.Module):
    """Standardises F feature columns; optionally adds their signed logarithms, for heavy-tailed ones.

    Statistics are fitted once, on the first decisions of a training run, and travel with the checkpoint.

    Args:
        n_features: F.
        with_log: output (..., 2F), the second half being standardised sign(x) log(1 + |x|).
    """

    mean: Tensor
    std: Tensor
    fitted: Tensor
    clip = 6.0

    def __init__(self, n_features: int, with_log: bool) -> None:
        super().__init__()
        self.with_log = with_log
        self.n_outputs = n_features * (2 if with_log else 1)
        self.register_buffer("mean", torch.zeros(self.n_outputs))
        self.register_buffer("std", torch.ones(self.n_outputs))
        self.register_buffer("fitted", torch.zeros(()))

    def _expand(self, features: Tensor) -> Tensor:
        if not self.with_log:
            return features
        logs = torch.sign(features) * torch.log1p(features.abs())
        return torch.cat([features, logs], dim=-1)

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Set the statistics from rows (n, F); a constant column is only centred."""
        expanded = self._expand(features.double().reshape(-1, features.shape[-1]))
        self.mean.copy_(expanded.mean(0))
        std = expanded.std(0, unbiased=False)
        self.std.copy_(torch.where(std > 1e-6, std, torch.ones_like(std)))
        self.fitted.fill_(1.0)

    def forward(self, features: Tensor) -> Tensor:
        """(..., F) -> (..., n_outputs)."""
        return ((self._expand(features) - self.mean) / self.std).clamp(-self.clip, self.clip)


# RL-LSFC: LSTM over occupation, a shared layer, a head per value component (Liu 2022, Fig. 5.3).


_TABLES = {
    "table_5_1": (
        [col.SEQUENCE, col.CAPACITY_NORMAL, col.CAPACITY_MAX, col.HETERO_FACTOR, col.MISSED],
        [col.CATEGORY, col.EXPECTED_HETERO, col.SENSITIVITY, col.DURATION_S],
        [col.EXECUTION_S, col.DEADLINE_S],
    ),
    "table_4_1": (
        [col.SEQUENCE, col.CAPACITY_NORMAL, col.MISSED],
        [col.CATEGORY, col.STANDARD_S, col.DURATION_S],
        [col.DEADLINE_S],
    ),
}
"""Columns of a cluster, of a job, and of a job on a cluster, after its ten slots of requests."""
_SLOTS = 10

SEGMENT_LENGTH = 15
SEGMENT_STRIDE = 10


class StateColumns(nn.Module):
    """Selects and scales the columns of the state vector.

    Args:
        features: "table_5_1" gives exactly the 839-dimensional state of Liu 2022, Table 5.1 (for C = 5),
            "table_4_1" that of Table 4.1 (529 with the 100 occupation steps that RL-FC then takes), where a
            job's requests and deadline are the same on all clusters: those on the first one are taken.
            "all" gives every column of the observation but those of federated tasks, derived ones included.

    Attributes:
        described_clusters: of how many clusters the job's own columns (request, times) are part of the state.
    """

    def __init__(self, n_clusters: int, features: str) -> None:
        super().__init__()
        with_log = features == "all"
        if not with_log and features not in _TABLES:
            expected = ", ".join(map(repr, _TABLES))
            raise ValueError(f"agent.features is {features!r}: expected {expected} or 'all'")
        self.features = features
        self.described_clusters = 1 if features == "table_4_1" else n_clusters
        # The networks of the thesis know no federated tasks: their columns come last and are left out.
        n_cluster, n_job, n_pair = N_CLUSTER_FIELDS, col.IDLE, N_PAIR_FIELDS
        if not with_log:
            n_cluster, n_job, n_pair = map(len, _TABLES[features])
            n_pair += _SLOTS
        self.cluster_scaler = FeatureScaler(n_cluster, with_log)
        self.job_scaler = FeatureScaler(n_job, with_log)
        self.pair_scaler = FeatureScaler(n_pair, with_log)
        self.n_cluster_inputs = self.cluster_scaler.n_outputs
        self.n_job_inputs = self.job_scaler.n_outputs + self.described_clusters * self.pair_scaler.n_outputs

    def _select(self, batch: NetworkInput) -> tuple[Tensor, Tensor, Tensor]:
        if self.features == "all":
            return batch.clusters, batch.jobs[..., : col.IDLE], batch.pairs
        of_cluster, of_job, of_pair = _TABLES[self.features]
        pairs = batch.pairs[..., : self.described_clusters, :]
        requests = request_distribution(batch.jobs, pairs)
        described = torch.cat([requests, pairs[..., of_pair]], dim=-1)
        return batch.clusters[..., of_cluster], batch.jobs[..., of_job], described

    def fit(self, batch: NetworkInput) -> None:
        """Fit the normalisation of all inputs."""
        clusters, jobs, pairs = self._select(batch)
        self.cluster_scaler.fit(clusters)
        self.job_scaler.fit(jobs)
        self.pair_scaler.fit(pairs)

    def forward(self, batch: NetworkInput) -> tuple[Tensor, Tensor]:
        """Cluster inputs (B, C, n_cluster_inputs) and job inputs (B, J, n_job_inputs)."""
        clusters, jobs, pairs = self._select(batch)
        job_part = torch.cat([self.job_scaler(jobs), self.pair_scaler(pairs).flatten(2)], dim=-1)
        return self.cluster_scaler(clusters), job_part


class RLLSFC(ValueNetwork):
    """The network of Liu 2022, section 5.3.3.

    The latest 105 occupation steps of each cluster are cut into 10 segments of 15 with stride 10 (Fig. 5.4)
    and pass an LSTM shared by the clusters; its last state joins the other columns in a shared layer of 800,
    then each value component has its own layer of 200. The cluster part of the shared layer is computed once
    per decision and shared by all buffered jobs: FC(concat) = W_c clusters + W_j job.
    """

    def __init__(
        self,
        n_clusters: int,
        output_scales: tuple[float, ...],
        features: str = "table_5_1",
        lstm_size: int = 64,
        shared_size: int = 800,
        head_size: int = 200,
    ) -> None:
        super().__init__(output_scales)
        self.columns = StateColumns(n_clusters, features)
        self.lstm = nn.LSTM(SEGMENT_LENGTH, lstm_size, batch_first=True)
        self.shared_clusters = nn.Linear(
            n_clusters * (self.columns.n_cluster_inputs + lstm_size), shared_size
        )
        self.shared_job = nn.Linear(self.columns.n_job_inputs, shared_size, bias=False)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(shared_size, head_size), nn.ReLU(), nn.Linear(head_size, n_clusters + 1))
            for _ in output_scales
        )

    def fit_scalers(self, batch: NetworkInput) -> None:
        """Fit the input normalisation."""
        self.columns.fit(batch)

    def forward(self, batch: NetworkInput) -> Tensor:
        """(B, J, C + 1, n_outputs) scaled values."""
        clusters, job_part = self.columns(batch)
        n, n_clusters, steps = batch.occupation.shape
        segments = batch.occupation.reshape(n * n_clusters, steps).unfold(1, SEGMENT_LENGTH, SEGMENT_STRIDE)
        _, (hidden, _) = self.lstm(segments)
        temporal = hidden[-1].reshape(n, n_clusters, -1)
        cluster_part = self.shared_clusters(torch.cat([clusters, temporal], dim=-1).flatten(1))
        shared = torch.relu(cluster_part[:, None] + self.shared_job(job_part))
        return torch.stack([head(shared) for head in self.heads], dim=-1)


# RL-FC: fully connected value network (Liu 2022, section 4.3.2; the comparison model of section 5.4.6).

TABLE_4_1_STEPS = 100


class RLFC(ValueNetwork):
    """Two hidden layers (2000 and 500) over the flat state, one scalarised value per choice.

    With features "table_4_1" the state is that of Liu 2022, Table 4.1: 5 x 103 + 14 = 529 numbers for five
    clusters, the latest 100 occupation steps of each included; otherwise all 105 steps are part of it.
    """

    def __init__(
        self,
        n_clusters: int,
        output_scales: tuple[float, ...],
        features: str = "table_5_1",
        hidden_sizes: tuple[int, int] = (2000, 500),
    ) -> None:
        super().__init__(output_scales)
        self.columns = StateColumns(n_clusters, features)
        self.history_steps = TABLE_4_1_STEPS if features == "table_4_1" else HISTORY_STEPS
        first, second = hidden_sizes
        n_cluster_part = n_clusters * (self.columns.n_cluster_inputs + self.history_steps)
        self.first_clusters = nn.Linear(n_cluster_part, first)
        self.first_job = nn.Linear(self.columns.n_job_inputs, first, bias=False)
        self.rest = nn.Sequential(
            nn.ReLU(),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, (n_clusters + 1) * len(output_scales)),
        )

    def fit_scalers(self, batch: NetworkInput) -> None:
        """Fit the input normalisation."""
        self.columns.fit(batch)

    def forward(self, batch: NetworkInput) -> Tensor:
        """(B, J, C + 1, n_outputs) scaled values."""
        clusters, job_part = self.columns(batch)
        occupation = batch.occupation[..., -self.history_steps :]
        cluster_part = self.first_clusters(torch.cat([clusters, occupation], dim=-1).flatten(1))
        out: Tensor = self.rest(cluster_part[:, None] + self.first_job(job_part))
        return out.reshape(*out.shape[:2], -1, self.n_outputs)
