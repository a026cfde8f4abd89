"""What every value network has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from envs.simulation import columns as col

CLUSTER_COLUMNS_TABLE_5_1 = (
    col.SEQUENCE,
    col.CAPACITY_NORMAL,
    col.CAPACITY_MAX,
    col.HETERO_FACTOR,
    col.MISSED,
)
JOB_COLUMNS_TABLE_5_1 = (
    col.CATEGORY,
    col.EXPECTED_HETERO,
    col.SENSITIVITY,
    col.DURATION_S,
)
CLUSTER_COLUMNS_TABLE_4_1 = (col.SEQUENCE, col.CAPACITY_NORMAL, col.MISSED)
JOB_COLUMNS_TABLE_4_1 = (col.CATEGORY, col.STANDARD_S, col.DURATION_S)


@dataclass(frozen=True)
class NetworkInput:
    """One batch of decisions as tensors.

    Attributes:
        clusters: (B, C, N_CLUSTER_FIELDS).
        occupation: (B, C, HISTORY_STEPS).
        jobs: (B, J, N_JOB_FIELDS).
        pairs: (B, J, C, N_PAIR_FIELDS).
        appraisal: (B, J, C + 1) costs that a rule expects of the choices, for networks that use them.
    """

    clusters: Tensor
    occupation: Tensor
    jobs: Tensor
    pairs: Tensor
    appraisal: Tensor | None = None

    def of_job(self, j: int) -> NetworkInput:
        """The same decisions with only row j of the window (J = 1)."""
        appraisal = None if self.appraisal is None else self.appraisal[:, j : j + 1]
        return NetworkInput(
            self.clusters, self.occupation, self.jobs[:, j : j + 1], self.pairs[:, j : j + 1], appraisal
        )


class ValueNetwork(nn.Module, ABC):
    """Maps decisions to the (scaled) value components of every choice.

    Attributes:
        n_outputs: K value components, or 1 for a network that learns the scalarised value.
        output_scales: (n_outputs,) physical value = output * scale.
    """

    output_scales: Tensor

    def __init__(self, output_scales: tuple[float, ...]) -> None:
        super().__init__()
        self.n_outputs = len(output_scales)
        self.register_buffer("output_scales", torch.tensor(output_scales, dtype=torch.float32))

    def set_scales(self, output_scales: Tensor, unit: Tensor) -> None:
        """Give the heads other scales; `unit` is what one scaled value is worth in the objective."""
        self.output_scales.copy_(output_scales)

    @abstractmethod
    def fit_scalers(self, batch: NetworkInput) -> None:
        """Fit the input normalisation on the decisions of the first episodes."""

    @abstractmethod
    def forward(self, batch: NetworkInput) -> Tensor:
        """(B, J, C + 1, n_outputs) scaled values; index C is "none for now"."""

    def choice_values(self, batch: NetworkInput, choices: Tensor) -> Tensor:
        """(B, M, n_outputs) scaled values of some choices (B, M) of decisions with J = 1; C is "none"."""
        values: Tensor = self(batch)[:, 0]
        return values.gather(1, choices[..., None].expand(-1, -1, values.shape[-1]))

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
