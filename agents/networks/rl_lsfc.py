"""RL-LSFC: LSTM over occupation, a shared layer, a head per value component (Liu 2022, Fig. 5.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.networks.base import (
    CLUSTER_COLUMNS_TABLE_5_1,
    JOB_COLUMNS_TABLE_5_1,
    NetworkInput,
    ValueNetwork,
    request_distribution,
)
from agents.networks.scaler import FeatureScaler
from envs.simulation.snapshot import N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS, PairField

SEGMENT_LENGTH = 15
SEGMENT_STRIDE = 10


class StateColumns(nn.Module):
    """Selects and scales the columns of the state vector.

    Args:
        features: "table_5_1" gives exactly the 839-dimensional state of Liu 2022, Table 5.1 (for C = 5);
            "all" gives every column of the observation, derived ones included.
    """

    def __init__(self, n_clusters: int, features: str) -> None:
        super().__init__()
        if features not in ("table_5_1", "all"):
            raise ValueError(f"agent.features is {features!r}: expected 'table_5_1' or 'all'")
        self.paper = features == "table_5_1"
        with_log = not self.paper
        n_cluster = len(CLUSTER_COLUMNS_TABLE_5_1) if self.paper else N_CLUSTER_FIELDS
        n_job = len(JOB_COLUMNS_TABLE_5_1) if self.paper else N_JOB_FIELDS
        n_pair = 12 if self.paper else N_PAIR_FIELDS
        self.cluster_scaler = FeatureScaler(n_cluster, with_log)
        self.job_scaler = FeatureScaler(n_job, with_log)
        self.pair_scaler = FeatureScaler(n_pair, with_log)
        self.n_cluster_inputs = self.cluster_scaler.n_outputs
        self.n_job_inputs = self.job_scaler.n_outputs + n_clusters * self.pair_scaler.n_outputs

    def _select(self, batch: NetworkInput) -> tuple[Tensor, Tensor, Tensor]:
        if not self.paper:
            return batch.clusters, batch.jobs, batch.pairs
        distribution = request_distribution(batch.jobs, batch.pairs)
        times = batch.pairs[..., [PairField.EXECUTION_S, PairField.DEADLINE_S]]
        return (
            batch.clusters[..., list(CLUSTER_COLUMNS_TABLE_5_1)],
            batch.jobs[..., list(JOB_COLUMNS_TABLE_5_1)],
            torch.cat([distribution, times], dim=-1),
        )

    def fit(self, batch: NetworkInput) -> None:
        """Fit all scalers."""
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
