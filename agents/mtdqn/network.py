"""The network of `mtdqn` in torch, to learn, and as the vector that compiled code reads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spotweave.agents.mtdqn.forward import CLIP, HALF_NEED, Sizes, mean_at, occupation_at
from spotweave.agents.networks.rl_lsfc import SEGMENT_LENGTH, SEGMENT_STRIDE

LEAST_SPREAD = 0.05


class Heads(nn.Module):
    """Networks of two hidden layers side by side; at first they output 0 and add nothing to what is known.

    Args:
        networks: how many.
        widths: of the inputs, both hidden layers and the outputs.
    """

    def __init__(self, networks: int, *widths: int) -> None:
        super().__init__()
        layers = list(pairwise(widths))
        self.weights = nn.ParameterList(torch.zeros(networks, *layer) for layer in layers)
        self.biases = nn.ParameterList(torch.zeros(networks, 1, outputs) for _, outputs in layers)
        for weight, bias in list(zip(self.weights, self.biases, strict=True))[:-1]:
            most = weight.shape[1] ** -0.5  # as `nn.Linear` starts
            nn.init.uniform_(weight, -most, most)
            nn.init.uniform_(bias, -most, most)

    def forward(self, inputs: Tensor) -> Tensor:
        """(networks, N, outputs) for (N, inputs)."""
        values = inputs.expand(len(self.biases[0]), -1, -1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight is not self.weights[0]:
                values = values.relu()
            values = torch.baddbmm(bias, values, weight)
        return values

    def parts(self) -> list[Tensor]:
        """Weights (inputs, outputs) and biases of each network, layer by layer."""
        layers = list(zip(self.weights, self.biases, strict=True))
        return [part[k] for k in range(len(self.biases[0])) for layer in layers for part in layer]


class MTDQNNetwork(nn.Module):
    """What a job comes to on a place beyond what is known, and what it does there to all others.

    It is learned in torch and packed into one vector, which compiled code reads.

    An LSTM reads the occupation of the place as RL-LSFC does (Liu 2022, section 5.3.3). The mutual head gives
    the price of what the job needs there: p1 * need + p2 * need / (1/2 + need).

    Args:
        sizes: see `Sizes`.
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        n_known = sizes.scaled * (sizes.places + sizes.state)
        self.register_buffer("mean", torch.zeros(n_known))
        self.register_buffer("factor", torch.ones(n_known))
        seen = sizes.places + sizes.state + sizes.lstm
        self.lstm = nn.LSTM(SEGMENT_LENGTH, sizes.lstm, batch_first=True) if sizes.lstm else None
        own, mutual = sizes.own, sizes.mutual
        self.own = Heads(sizes.networks, seen, own, own, sizes.heads) if own else None
        self.prices = Heads(1, seen + sizes.places, mutual, mutual, 2) if mutual else None

    def fit_scaler(self, columns: Tensor) -> None:
        """Scale by the mean and spread of these columns (N, n_columns), where columns are scaled at all."""
        if self.sizes.scaled:
            known = columns[:, : mean_at(self.sizes)]
            self.mean.copy_(known.mean(0))
            self.factor.copy_(1.0 / known.std(0).clamp(min=LEAST_SPREAD))

    def _scaled(self, columns: Tensor) -> Tensor:
        if not self.sizes.scaled:
            return columns
        width = columns.shape[1]
        return ((columns - self.mean[:width]) * self.factor[:width]).clamp(-CLIP, CLIP)

    def _seen(self, columns: Tensor) -> Tensor:
        known = self._scaled(columns[:, : mean_at(self.sizes)])
        if self.lstm is None:
            return known
        occupation = columns[:, occupation_at(self.sizes) :]
        _, (state, _) = self.lstm(occupation.unfold(1, SEGMENT_LENGTH, SEGMENT_STRIDE))
        return torch.cat([known, state[-1]], 1)

    def own_values(self, columns: Tensor) -> Tensor:
        """(networks, N, heads) outputs of the own heads for columns (N, n_columns); zeros without any."""
        if self.own is None:
            return torch.zeros(1, len(columns), self.sizes.heads, device=columns.device)
        values: Tensor = self.own(self._seen(columns))
        return values

    def mutual_values(self, columns: Tensor, needs: Tensor) -> Tensor:
        """(N,) what the job there does to all others, for columns (N, n_columns) and needs (N,)."""
        if self.prices is None:
            return torch.zeros_like(needs)
        everywhere = self._scaled(columns[:, mean_at(self.sizes) : occupation_at(self.sizes)])
        (prices,) = self.prices(torch.cat([self._seen(columns), everywhere], 1))
        values: Tensor = prices[:, 0] * needs + prices[:, 1] * needs / (HALF_NEED + needs)
        return values

    def _parts(self) -> list[Tensor]:
        """Scaler, LSTM, own heads and mutual head, as `evaluate` reads them; views that share memory."""
        parts = [self.mean, self.factor]
        if self.lstm is not None:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            of_input, of_state, *biases = (self.lstm.get_parameter(f"{name}_l0") for name in names)
            parts += [of_input.T, of_state.T, *biases]
        for heads in (self.own, self.prices):
            parts += heads.parts() if heads is not None else []
        return parts

    def vector(self) -> NDArray[np.float32]:
        """All weights, in the order in which compiled code reads them."""
        packed: NDArray[np.float32] = torch.cat([p.detach().reshape(-1) for p in self._parts()]).cpu().numpy()
        return packed

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Become the network whose `vector()` this is. Raises ValueError for a vector of another length."""
        parts = self._parts()
        sizes = [part.numel() for part in parts]
        if len(vector) != sum(sizes):
            raise ValueError(f"expected {sum(sizes)} weights, got {len(vector)}")
        pieces = np.split(vector, np.cumsum(sizes)[:-1])
        with torch.no_grad():
            for part, piece in zip(parts, pieces, strict=True):
                part.copy_(torch.from_numpy(piece.copy()).reshape(part.shape))
