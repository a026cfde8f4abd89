"""Normalisation inside the networks: observations stay in physical units everywhere else."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
