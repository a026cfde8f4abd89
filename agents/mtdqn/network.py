"""The network of `mtdqn` in torch, to learn, and as the vector that compiled code reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.mtdqn.columns import N_JOB_COLUMNS
from agents.mtdqn.forward import HALF_NEED, N_OWN, Sizes
from agents.networks.packed import PackedNetwork, linear_parts, lstm_parts
from agents.networks.rl_lsfc import SEGMENT_LENGTH, SEGMENT_STRIDE


def _head(n_inputs: int, hidden: int, n_outputs: int) -> nn.Sequential:
    """Two hidden layers; outputs start at 0, so that a new network adds nothing to what is known."""
    last = nn.Linear(hidden, n_outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), last)


class MTDQNNetwork(PackedNetwork):
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

    def parts(self) -> list[Tensor]:
        """LSTM, own heads and mutual head, as `forward.evaluate` reads them."""
        return [*lstm_parts(self.lstm), *linear_parts(*self.own, *(self.prices or ()))]
