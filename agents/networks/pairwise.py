"""The pairwise network: one scorer shared by all (job, cluster) pairs, for any number of clusters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.networks.base import NetworkInput, ValueNetwork
from agents.networks.scaler import FeatureScaler
from envs.simulation import columns as col
from envs.simulation.snapshot import (
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
)

OCCUPATION_WINDOWS = (1, 5, 20, 50, 105)
"""The latest steps over which each cluster's occupation is averaged."""

_IDENTITY_COLUMNS = (col.SEQUENCE, col.PROVIDER, col.REGION)


class PairwiseNetwork(ValueNetwork):
    """Scores each (job, cluster) pair with shared weights, in the light of all clusters.

    Each cluster is encoded on its own; mean and maximum over the clusters are the context that every pair
    sees. "None for now" is scored from the job and the context. No weight depends on the number or the order
    of the clusters, and columns that only name a cluster (number, provider, region) are left out.

    Args:
        output_scales: K scales.
        embedding_size: width of the cluster and job encodings.
        hidden_size: width of the pair layers.
        appraised: whether each choice comes with the cost that a rule expects of it (see
            `agents.rules.appraisal`). The network then starts as that rule and learns where it is wrong: the
            last component (delay or money) begins with minus the appraised cost.
        rounds: whether the columns of federated tasks are part of the input.
        relative: whether what it adds to the appraised costs is in proportion to what the job costs, as far
            as that is little: then its errors are cents for a job of cents.
    """

    kept_clusters: Tensor
    unit: Tensor
    most = 8.0
    """Bound on the appraised cost, in units of the objective: beyond it, choices are equally bad."""

    def __init__(
        self,
        output_scales: tuple[float, ...],
        embedding_size: int = 64,
        hidden_size: int = 128,
        appraised: bool = False,
        rounds: bool = False,
        relative: bool = False,
    ) -> None:
        super().__init__(output_scales)
        self.appraised = appraised
        self.relative = relative
        self.rounds = rounds
        self.n_job_columns = N_JOB_FIELDS if rounds else col.IDLE
        self.appraisal_scaler = FeatureScaler(2, with_log=True)
        n_appraisal = self.appraisal_scaler.n_outputs if appraised else 0
        kept = [field for field in range(N_CLUSTER_FIELDS) if field not in _IDENTITY_COLUMNS]
        self.register_buffer("kept_clusters", torch.tensor(kept), persistent=False)
        self.cluster_scaler = FeatureScaler(len(kept), with_log=True)
        self.job_scaler = FeatureScaler(self.n_job_columns, with_log=True)
        self.pair_scaler = FeatureScaler(N_PAIR_FIELDS, with_log=True)
        n_cluster = self.cluster_scaler.n_outputs + len(OCCUPATION_WINDOWS)
        self.encode_cluster = nn.Sequential(nn.Linear(n_cluster, embedding_size), nn.ReLU())
        self.encode_job = nn.Sequential(nn.Linear(self.job_scaler.n_outputs, embedding_size), nn.ReLU())
        self.pair_input = nn.Linear(self.pair_scaler.n_outputs + n_appraisal, hidden_size)
        self.pair_cluster = nn.Linear(embedding_size, hidden_size, bias=False)
        self.pair_state = nn.Linear(3 * embedding_size, hidden_size, bias=False)
        self.pair_hidden = nn.Linear(hidden_size, hidden_size)
        self.pair_output = nn.Linear(hidden_size, self.n_outputs)
        self.none_hidden = nn.Linear(3 * embedding_size + n_appraisal, hidden_size)
        self.none_output = nn.Linear(hidden_size, self.n_outputs)
        self.register_buffer("unit", torch.ones(()))
        if appraised:
            for layer in (self.pair_output, self.none_output):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

    def set_scales(self, output_scales: Tensor, unit: Tensor) -> None:
        """Give the heads other scales; the unit turns the appraised costs into scaled values."""
        super().set_scales(output_scales, unit)
        self.unit.copy_(unit)

    def fit_scalers(self, batch: NetworkInput) -> None:
        """Fit the input normalisation."""
        self.cluster_scaler.fit(batch.clusters[..., self.kept_clusters])
        self.job_scaler.fit(batch.jobs[..., : self.n_job_columns])
        self.pair_scaler.fit(batch.pairs)
        if self.appraised:
            self.appraisal_scaler.fit(self._appraisal_columns(batch))

    def _appraisal_columns(self, batch: NetworkInput) -> Tensor:
        """(B, J, C + 1, 2): each choice's appraised cost, and how much it exceeds the job's cheapest."""
        if batch.appraisal is None:
            raise ValueError("this network needs the appraisal of a rule with its input")
        cheapest = batch.appraisal.amin(-1, keepdim=True)
        return torch.stack([batch.appraisal, batch.appraisal - cheapest], dim=-1)

    def stake(self, batch: NetworkInput) -> Tensor:
        """(B, 1) what a decision with J = 1 is about: cost / (cost + unit), at the job's cheapest cluster."""
        if batch.appraisal is None:
            raise ValueError("this network needs the appraisal of a rule with its input")
        cost = batch.appraisal[:, 0, :-1].amin(-1, keepdim=True).clamp(min=0.0)
        return cost / (cost + self.unit)

    def forward(self, batch: NetworkInput) -> Tensor:
        """(B, J, C + 1, n_outputs) scaled values."""
        n, n_jobs = batch.jobs.shape[:2]
        every = torch.arange(batch.clusters.shape[1] + 1, device=batch.jobs.device).expand(n, -1)
        values = [self.choice_values(batch.of_job(j), every) for j in range(n_jobs)]
        return torch.stack(values, dim=1)

    def choice_values(self, batch: NetworkInput, choices: Tensor) -> Tensor:
        """(B, M, n_outputs) scaled values of some choices (B, M) of decisions with J = 1.

        Only the pairs asked for are computed, whatever the number of clusters.
        """
        history = torch.stack([batch.occupation[..., -w:].mean(-1) for w in OCCUPATION_WINDOWS], dim=-1)
        columns = self.cluster_scaler(batch.clusters[..., self.kept_clusters])
        # Clusters are numbered from 1: rows of 0 only pad a batch of worlds of different size.
        there = (batch.clusters[..., col.SEQUENCE] > 0)[..., None].to(columns.dtype)
        clusters = self.encode_cluster(torch.cat([columns, history], dim=-1)) * there
        mean = clusters.sum(1) / there.sum(1)
        job = self.encode_job(self.job_scaler(batch.jobs[:, 0, : self.n_job_columns]))
        state = torch.cat([job, mean, clusters.amax(1)], dim=-1)
        is_none = choices == clusters.shape[1]
        place = choices.masked_fill(is_none, 0)[..., None]
        pairs = self.pair_scaler(batch.pairs[:, 0].gather(1, place.expand(-1, -1, N_PAIR_FIELDS)))
        waiting = state
        excess: Tensor | None = None
        if self.appraised:
            costs = self._appraisal_columns(batch)[:, 0]
            excess = (costs[..., 1] / self.unit).clamp(max=self.most).gather(1, choices)
            appraisal = self.appraisal_scaler(costs)
            pairs = torch.cat([pairs, appraisal.gather(1, place.expand(-1, -1, appraisal.shape[-1]))], dim=-1)
            waiting = torch.cat([state, appraisal[:, -1]], dim=-1)
        chosen = clusters.gather(1, place.expand(-1, -1, clusters.shape[-1]))
        hidden = torch.relu(
            self.pair_input(pairs) + self.pair_cluster(chosen) + self.pair_state(state)[:, None]
        )
        placed = self.pair_output(torch.relu(self.pair_hidden(hidden)))
        none = self.none_output(torch.relu(self.none_hidden(waiting)))
        values = torch.where(is_none[..., None], none[:, None], placed)
        if excess is None:
            return values
        if self.relative:
            values = values * self.stake(batch)[..., None]
        return torch.cat([values[..., :-1], values[..., -1:] - excess[..., None]], dim=-1)
