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
    """

    clusters: Tensor
    occupation: Tensor
    jobs: Tensor
    pairs: Tensor


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
