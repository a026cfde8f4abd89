"""Networks whose weights travel as one vector: learned in torch, read by compiled code."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class PackedNetwork(nn.Module, ABC):
    """A network that becomes one vector and back."""

    @abstractmethod
    def parts(self) -> list[Tensor]:
        """Its weights in the vector's order, as views that share memory with the network."""

    def vector(self) -> NDArray[np.float32]:
        """All weights, in the order in which compiled code reads them."""
        packed: NDArray[np.float32] = torch.cat([p.detach().reshape(-1) for p in self.parts()]).cpu().numpy()
        return packed

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Become the network whose `vector()` this is.

        Raises:
            ValueError: for a vector of another length.
        """
        parts = self.parts()
        sizes = [part.numel() for part in parts]
        if len(vector) != sum(sizes):
            raise ValueError(f"expected {sum(sizes)} weights, got {len(vector)}")
        pieces = np.split(vector, np.cumsum(sizes)[:-1])
        with torch.no_grad():
            for part, piece in zip(parts, pieces, strict=True):
                part.copy_(torch.from_numpy(piece.copy()).reshape(part.shape))


def lstm_parts(lstm: nn.LSTM | None) -> list[Tensor]:
    """Weights of an LSTM of one layer as `agents.mtdqn.forward` reads them; none without one."""
    if lstm is None:
        return []
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    of_input, of_state, *biases = (lstm.get_parameter(f"{name}_l0") for name in names)
    return [of_input.T, of_state.T, *biases]


def linear_parts(*layers: nn.Module) -> list[Tensor]:
    """Weights (inputs x outputs) and bias of each linear layer among these, in order."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return [part for layer in linear for part in (layer.weight.T, layer.bias)]
