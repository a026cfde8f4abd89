"""The network of `mtdqn` in torch, to learn, and as the vector that compiled code reads."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.mtdqn.columns import N_JOB_COLUMNS
from agents.mtdqn.forward import HALF_NEED, N_OWN, Sizes, network_size
from agents.networks.rl_lsfc import SEGMENT_LENGTH, SEGMENT_STRIDE

LSTM_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _head(n_inputs: int, hidden: int, n_outputs: int) -> nn.Sequential:
    """Two hidden layers; outputs start at 0, so that a new network adds nothing to what is known."""
    last = nn.Linear(hidden, n_outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), last)


class MTDQNNetwork(nn.Module):
    """Own misses, own delay and mutual value of jobs on places, in missed deadlines.

    An LSTM reads the occupation of the place as RL-LSFC does (Liu 2022, section 5.3.3). The mutual head gives
    the price of what the job needs there: p1 * need + p2 * need / (1/2 + need).

    Args:
        sizes: see `Sizes`.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        seen = sizes.places + N_JOB_COLUMNS + sizes.lstm
        self.lstm = nn.LSTM(SEGMENT_LENGTH, sizes.lstm, batch_first=True) if sizes.lstm else None
        self.own = _head(seen, sizes.own, N_OWN)
        self.prices = _head(seen + sizes.places, sizes.mutual, 2) if sizes.mutual else None

    def _seen(self, columns: Tensor) -> Tensor:
        places = self.sizes.places
        parts = [columns[:, :places], columns[:, 2 * places : 2 * places + N_JOB_COLUMNS]]
        if self.lstm is not None:
            occupation = columns[:, 2 * places + N_JOB_COLUMNS :]
            _, (state, _) = self.lstm(occupation.unfold(1, SEGMENT_LENGTH, SEGMENT_STRIDE))
            parts.append(state[-1])
        return torch.cat(parts, 1)

    def own_values(self, columns: Tensor) -> Tensor:
        """(N, 2) misses and delay beyond what is known without waiting, for columns (N, n_columns)."""
        values: Tensor = self.own(self._seen(columns))
        return values

    def mutual_values(self, columns: Tensor, needs: Tensor) -> Tensor:
        """(N,) what the job there does to all others, for columns (N, n_columns) and needs (N,)."""
        if self.prices is None:
            return torch.zeros_like(needs)
        places = self.sizes.places
        prices = self.prices(torch.cat([self._seen(columns), columns[:, places : 2 * places]], 1))
        values: Tensor = prices[:, 0] * needs + prices[:, 1] * needs / (HALF_NEED + needs)
        return values

    def vector(self) -> NDArray[np.float32]:
        """(network_size,) as `forward.evaluate` reads it."""
        result: NDArray[np.float32] = torch.cat([p.detach().reshape(-1) for p in self._parts()]).cpu().numpy()
        assert result.shape == (network_size(self.sizes),)
        return result

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Become the network whose `vector()` this is.

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
        parts: list[Tensor] = []
        if self.lstm is not None:
            of_input, of_state, *biases = (self.lstm.get_parameter(f"{name}_l0") for name in LSTM_PARTS)
            parts += [of_input.T, of_state.T, *biases]
        for head in (self.own, self.prices):
            if head is not None:
                for layer in head:
                    if isinstance(layer, nn.Linear):
                        parts += [layer.weight.T, layer.bias]
        return parts
