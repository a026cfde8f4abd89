"""What every value network has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spotweave.envs.simulation import columns as col


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
