"""RL-LSFC: LSTM over occupation, a shared layer, a head per value component (Liu 2022, Fig. 5.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spotweave.agents.networks.base import FeatureScaler, NetworkInput, ValueNetwork, request_distribution
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import HISTORY_STEPS, N_CLUSTER_FIELDS, N_PAIR_FIELDS

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
