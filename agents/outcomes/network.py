"""The networks of the ensemble in torch, to learn, and as the vectors that compiled code reads."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.networks.rl_lsfc import SEGMENT_LENGTH, SEGMENT_STRIDE
from agents.outcomes.features import N_FEATURES
from agents.outcomes.forward import HEADS, Sizes, network_size

CLIP = 5.0
LEAST_SPREAD = 0.05
LSTM_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class OutcomeNetwork(nn.Module):
    """What a choice costs beyond what the rule expects, and whether deadlines will be missed.

    With an LSTM it also reads how occupied the choice's place was lately, as RL-LSFC does for all clusters
    (Liu 2022, section 5.3.3).

    Args:
        sizes: units of both hidden layers (ReLU) and of the LSTM.
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.register_buffer("mean", torch.zeros(N_FEATURES))
        self.register_buffer("factor", torch.ones(N_FEATURES))
        self.lstm = nn.LSTM(SEGMENT_LENGTH, sizes.lstm, batch_first=True) if sizes.lstm else None
        self.first = nn.Linear(N_FEATURES + sizes.lstm, sizes.hidden)
        self.second = nn.Linear(sizes.hidden, sizes.hidden)
        self.heads = nn.Linear(sizes.hidden, HEADS)
        nn.init.zeros_(self.heads.weight)
        nn.init.zeros_(self.heads.bias)

    def fit_scaler(self, features: Tensor) -> None:
        """Normalise by these (N, n_inputs)."""
        known = features[:, :N_FEATURES]
        self.mean.copy_(known.mean(0))
        self.factor.copy_(1.0 / known.std(0).clamp(min=LEAST_SPREAD))

    def forward(self, features: Tensor) -> Tensor:
        """(N, HEADS) for features (N, n_inputs)."""
        known = ((features[:, :N_FEATURES] - self.mean) * self.factor).clamp(-CLIP, CLIP)
        if self.lstm is not None:
            _, (state, _) = self.lstm(features[:, N_FEATURES:].unfold(1, SEGMENT_LENGTH, SEGMENT_STRIDE))
            known = torch.cat([known, state[-1]], 1)
        outputs: Tensor = self.heads(torch.relu(self.second(torch.relu(self.first(known)))))
        return outputs

    def vector(self) -> NDArray[np.float32]:
        """(network_size,) as `decide.evaluate` reads it."""
        result: NDArray[np.float32] = torch.cat([p.detach().reshape(-1) for p in self._parts()]).cpu().numpy()
        assert result.shape == (network_size(self.sizes),)
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
        parts = [self.mean, self.factor]
        if self.lstm is not None:
            of_input, of_state, *biases = (self.lstm.get_parameter(f"{name}_l0") for name in LSTM_PARTS)
            parts += [of_input.T, of_state.T, *biases]
        for layer in (self.first, self.second, self.heads):
            parts += [layer.weight.T, layer.bias]
        return parts
