"""The network of `mtdqn` in torch, to learn, and as the vector that compiled code reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from agents.mtdqn.forward import CLIP, HALF_NEED, Sizes, mean_at, occupation_at
from agents.networks.base import PackedNetwork, linear_parts, lstm_parts
from agents.networks.rl_lsfc import SEGMENT_LENGTH, SEGMENT_STRIDE

LEAST_SPREAD = 0.05


def _head(n_inputs: int, hidden: int, n_outputs: int) -> nn.Sequential:
    """Two hidden layers; outputs start at 0, so that a new network adds nothing to what is known."""
    last = nn.Linear(hidden, n_outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), last)


class MTDQNNetwork(PackedNetwork):
    """What a job comes to on a place beyond what is known, and what it does there to all others.

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
        self.own = nn.ModuleList(
            _head(seen, sizes.own, sizes.heads) for _ in range(sizes.networks if sizes.own else 0)
        )
        self.prices = _head(seen + sizes.places, sizes.mutual, 2) if sizes.mutual else None

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
        if not self.own:
            return torch.zeros(1, len(columns), self.sizes.heads, device=columns.device)
        seen = self._seen(columns)
        return torch.stack([own(seen) for own in self.own])

    def mutual_values(self, columns: Tensor, needs: Tensor) -> Tensor:
        """(N,) what the job there does to all others, for columns (N, n_columns) and needs (N,)."""
        if self.prices is None:
            return torch.zeros_like(needs)
        everywhere = self._scaled(columns[:, mean_at(self.sizes) : occupation_at(self.sizes)])
        prices = self.prices(torch.cat([self._seen(columns), everywhere], 1))
        values: Tensor = prices[:, 0] * needs + prices[:, 1] * needs / (HALF_NEED + needs)
        return values

    def parts(self) -> list[Tensor]:
        """Scaler, LSTM, own heads and mutual head, as `forward.evaluate` reads them."""
        layers = linear_parts(*self.own.modules(), *(self.prices or ()))
        return [self.mean, self.factor, *lstm_parts(self.lstm), *layers]


def averaged(networks: Sequence[MTDQNNetwork]) -> MTDQNNetwork:
    """One network that has the own heads of several, so that the mean of their values counts.

    Only where a column is beyond `CLIP` spreads do they say anything else, because the scalers are averaged.

    Raises:
        ValueError: for networks of different sizes, or with an LSTM or a mutual head.
    """
    sizes = networks[0].sizes
    if sizes.lstm or sizes.mutual or not sizes.own or any(one.sizes != sizes for one in networks):
        raise ValueError("expected networks of one size with own values alone")
    joined = MTDQNNetwork(sizes._replace(networks=sizes.networks * len(networks)))
    with torch.no_grad():
        joined.mean.copy_(torch.stack([one.mean for one in networks]).mean(0))
        joined.factor.copy_(1.0 / torch.stack([1.0 / one.factor for one in networks]).mean(0))
        owns = [(one, own) for one in networks for own in one.own]
        for (one, theirs), own in zip(owns, joined.own, strict=True):
            own.load_state_dict(theirs.state_dict())
            # It reads what it read: its own scaling is undone in the first layer.
            first = next(layer for layer in own.modules() if isinstance(layer, nn.Linear))
            weight = first.weight * one.factor
            first.bias.add_(weight @ (joined.mean - one.mean))
            first.weight.copy_(weight / joined.factor)
    return joined
