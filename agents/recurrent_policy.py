"""A recurrent library agent as a Policy: an LSTM that remembers the decisions of an episode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.flat_policy import FlatNetwork, FlatPolicy, linear_layers, scored
from agents.flattening import Flattening
from envs.simulation.snapshot import Observation

Memory = tuple[Tensor, Tensor]
"""Hidden and cell state of an LSTM, (1, n, lstm_size) each."""


class RecurrentNetwork(FlatNetwork):
    """An LSTM over decisions, then linear layers with ReLU between them.

    Args:
        n_inputs: D.
        lstm_size: hidden units of the LSTM.
        hidden_sizes: units of the hidden layers after it.
        n_actions: scores.
    """

    def __init__(self, n_inputs: int, lstm_size: int, hidden_sizes: Sequence[int], n_actions: int) -> None:
        super().__init__(n_inputs)
        self.lstm = nn.LSTM(n_inputs, lstm_size)
        self.linears = linear_layers(lstm_size, hidden_sizes, n_actions)

    def forward(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """(n, n_actions) scores of one decision in each of n episodes, and the memory after it."""
        hidden, after = self.lstm(features[None], memory)
        return scored(self.linears, hidden[0]), after


class RecurrentPolicy(FlatPolicy):
    """The valid action with the highest score, given all that was seen since `begin`.

    Args:
        network: the scores.
        flattening: what it was trained with.
        name: shown in tables.
        device: where the network computes.
    """

    remembers = True
    network: RecurrentNetwork

    def __init__(
        self,
        network: RecurrentNetwork,
        flattening: Flattening,
        name: str,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(network, flattening, name, device)
        self._memory: dict[int, Tensor] = {}
        self._nothing = torch.zeros(2, network.lstm.hidden_size, device=self.device)

    def begin(self, lane: int, seed: int) -> None:
        """Forget what the lane's last episode left."""
        self._memory.pop(lane, None)

    def scores(self, observations: Observation, lanes: NDArray[np.int64]) -> Tensor:
        """(n, J' * (C + 1)) scores, invalid actions included; each row's lane remembers the row."""
        before = torch.stack([self._memory.get(int(lane), self._nothing) for lane in lanes], dim=1)
        after: Memory
        scores: Tensor
        scores, after = self.network(self.features(observations), (before[:1], before[1:]))
        rows = torch.cat(after)
        self._memory |= {int(lane): rows[:, row] for row, lane in enumerate(lanes)}
        return scores
