"""Regression of counterfactual advantages: how much better one choice is than the others, all else equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from agents.learning.labelled_replay import LabelledBatch
from agents.networks.base import ValueNetwork


def centred(values: Tensor, tried: Tensor) -> Tensor:
    """Values (B, M, K) minus their mean over the tried choices; 0 where not tried."""
    mask = tried[..., None].to(values.dtype)
    mean = (values * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1.0)
    return (values - mean) * mask


class AdvantageRegression:
    """Fits differences between the network's values of tried choices to differences in outcomes.

    All choices of one decision are tried in the same world with the same future, so what they have in common
    cancels, and the mean over futures of what is left is the advantage. The squared error keeps that mean
    unbiased, rare disasters included; that is why targets are clipped only far out.

    Args:
        network: K heads; its output scales are set by `fit_scales`.
        weights: (K,) weights of the objective.
        learning_rate: the first learning rate of Adam.
        target_clip: bound on centred outcomes, in scaled units.
        gradient_clip: bound on the gradient's norm.
    """

    LEVEL_WEIGHT = 1e-3
    """Pulls the mean value of a decision, which no label fixes, towards 0."""
    AVERAGE_DECAY = 0.998
    """Per gradient step: acting on averaged weights takes the noise of single labels out of the choices."""

    def __init__(
        self,
        network: ValueNetwork,
        weights: Sequence[float],
        learning_rate: float,
        target_clip: float,
        gradient_clip: float = 10.0,
    ) -> None:
        self.network = network
        self.weights = torch.tensor(list(weights), dtype=torch.float32, device=network.output_scales.device)
        self.target_clip = target_clip
        self.gradient_clip = gradient_clip
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
        keep = get_ema_multi_avg_fn(self.AVERAGE_DECAY)  # type: ignore[no-untyped-call]
        self.average = AveragedModel(network, multi_avg_fn=keep)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the (base) learning rate, as the schedule says."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    @torch.no_grad()
    def fit_scales(self, batch: LabelledBatch) -> None:
        """Express every head in one unit of the objective: the root mean square of its advantages."""
        advantages = centred(batch.outcomes, batch.tried) @ self.weights
        unit = advantages[batch.tried].square().mean().sqrt().clamp(min=1e-6)
        weights = self.weights.abs().clamp(min=1e-6)
        self.network.set_scales(unit / weights, unit)

    @property
    def averaged_network(self) -> ValueNetwork:
        """The network to act with: its weights are an exponential average."""
        return cast(ValueNetwork, self.average.module)

    def step(self, batch: LabelledBatch) -> Tensor:
        """One gradient step; returns the (K,) loss per head before it."""
        self.network.train()
        tried_values = self.network.choice_values(batch.inputs, batch.choices)
        predicted = centred(tried_values, batch.tried)
        targets = centred(batch.outcomes, batch.tried) / self.network.output_scales
        errors = predicted - targets.clamp(-self.target_clip, self.target_clip)
        count = batch.tried.sum().clamp(min=1)
        per_head = errors.square().sum((0, 1)) / count
        scalarised = errors.sum(-1).square().sum() / count
        level = tried_values.square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(per_head.sum() + scalarised + self.LEVEL_WEIGHT * level)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.gradient_clip)
        self.optimizer.step()
        self.average.update_parameters(self.network)
        return per_head.detach()

    def state_dict(self) -> dict[str, Any]:
        """Weights, their running average and the optimiser."""
        return {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
