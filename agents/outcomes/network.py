"""The networks of the ensemble in torch, to learn, and as the vectors that compiled code reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.networks.packed import PackedNetwork, linear_parts, lstm_parts
from agents.networks.rl_lsfc import SEGMENT_LENGTH, SEGMENT_STRIDE
from agents.outcomes.features import N_FEATURES
from agents.outcomes.forward import HEADS, Sizes

CLIP = 5.0
LEAST_SPREAD = 0.05


class OutcomeNetwork(PackedNetwork):
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

    def parts(self) -> list[Tensor]:
        """Scaler, LSTM and layers, as `forward.evaluate` reads them."""
        layers = linear_parts(self.first, self.second, self.heads)
        return [self.mean, self.factor, *lstm_parts(self.lstm), *layers]
