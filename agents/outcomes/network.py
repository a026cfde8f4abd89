"""The networks of the ensemble in torch, to learn, and as the vectors that compiled code reads."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.outcomes.decide import HEADS, network_size
from agents.outcomes.features import N_FEATURES

CLIP = 5.0
LEAST_SPREAD = 0.05


class OutcomeNetwork(nn.Module):
    """What a choice costs beyond what the rule expects, and whether deadlines will be missed.

    Args:
        hidden: units of both hidden layers (ReLU).
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(N_FEATURES))
        self.register_buffer("factor", torch.ones(N_FEATURES))
        self.first = nn.Linear(N_FEATURES, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.heads = nn.Linear(hidden, HEADS)
        nn.init.zeros_(self.heads.weight)
        nn.init.zeros_(self.heads.bias)

    def fit_scaler(self, features: Tensor) -> None:
        """Normalise by these (N, N_FEATURES)."""
        self.mean.copy_(features.mean(0))
        self.factor.copy_(1.0 / features.std(0).clamp(min=LEAST_SPREAD))

    def forward(self, features: Tensor) -> Tensor:
        """(N, HEADS) for features (N, N_FEATURES)."""
        scaled = ((features - self.mean) * self.factor).clamp(-CLIP, CLIP)
        outputs: Tensor = self.heads(torch.relu(self.second(torch.relu(self.first(scaled)))))
        return outputs

    def vector(self) -> NDArray[np.float32]:
        """(network_size,) as `decide.evaluate` reads it."""
        result: NDArray[np.float32] = torch.cat([p.detach().reshape(-1) for p in self._parts()]).cpu().numpy()
        assert result.shape == (network_size(self.first.out_features),)
        return result

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Become the network whose `vector()` this is, scaler included.

        Raises:
            ValueError: for a vector of another length.
        """
        parts = self._parts()
        sizes = [part.numel() for part in parts]
        if len(vector) != sum(sizes):
            raise ValueError(f"expected {sum(sizes)} weights, got {len(vector)}")
        pieces = np.split(vector, np.cumsum(sizes)[:-1])
        with torch.no_grad():
            for part, piece in zip(parts, pieces, strict=True):
                part.copy_(torch.from_numpy(piece.copy()).reshape(part.shape))

    def _parts(self) -> list[Tensor]:
        layers = (self.first, self.second, self.heads)
        return [self.mean, self.factor] + [part for layer in layers for part in (layer.weight.T, layer.bias)]
