"""Multi-target regression of Monte-Carlo values (Liu 2022, sections 4.3.2 and 5.3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spotweave.agents.networks.base import NetworkInput, ValueNetwork
from spotweave.agents.policy import Policy
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import Observation, take_rows


class ValueRegression:
    """Fits the network's value of the *chosen* cluster to what the decision turned out to be worth.

    Targets are scaled by the network's output scales and clipped, because a few decisions are followed by
    hundreds of misses of other jobs and would drown the rest.

    Args:
        network: K heads, or one output that learns the scalarised value.
        weights: (K,) scalarisation weights, used when the network has one output.
        optimizer: "adam" or "sgd".
        learning_rate: the first learning rate.
        loss: "mse" or "huber".
        target_clip: bound on |target| in scaled units.
        gradient_clip: bound on the gradient's norm.
    """

    def __init__(
        self,
        network: ValueNetwork,
        weights: Sequence[float],
        optimizer: str = "adam",
        learning_rate: float = 5e-4,
        loss: str = "mse",
        target_clip: float = 5.0,
        gradient_clip: float = 10.0,
    ) -> None:
        self.network = network
        self.weights = torch.tensor(list(weights), dtype=torch.float32, device=network.output_scales.device)
        self.loss = loss
        self.target_clip = target_clip
        self.gradient_clip = gradient_clip
        kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
        self.optimizer: torch.optim.Optimizer = kind(network.parameters(), lr=learning_rate)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the (base) learning rate, as the schedule says."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def scaled_targets(self, values: Tensor) -> Tensor:
        """(n, n_outputs) regression targets of physical values (n, K)."""
        if self.network.n_outputs == 1:
            values = (values @ self.weights)[:, None]
        return (values / self.network.output_scales).clamp(-self.target_clip, self.target_clip)

    def step(self, batch: NetworkInput, chosen: Tensor, values: Tensor) -> Tensor:
        """One gradient step on n decisions with J = 1.

        Args:
            batch: n decisions.
            chosen: (n,) chosen cluster, C for none.
            values: (n, K) physical value components.

        Returns:
            (n_outputs,) loss per head before the step.
        """
        self.network.train()
        predictions = self.network(batch)[:, 0]
        index = chosen[:, None, None].expand(-1, 1, predictions.shape[-1])
        predicted = predictions.gather(1, index)[:, 0]
        targets = self.scaled_targets(values)
        if self.loss == "huber":
            errors = torch.nn.functional.huber_loss(predicted, targets, reduction="none")
        else:
            errors = (predicted - targets).square()
        per_head = errors.mean(0)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(per_head.sum())
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.gradient_clip)
        self.optimizer.step()
        return per_head.detach()

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser."""
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])


# Baseline-guided epsilon-greedy exploration (Liu 2022, eq. 4.3).


@dataclass(eq=False)
class GuidedExploration:
    """Explores with probability eps1, at random (probability eps2) or as the guide says; else is greedy."""

    guide: Policy  # the rule that guides
    rng: np.random.Generator  # the run's "exploration" stream

    def choose(
        self, policy: Policy, observations: Observation, lanes: Ints, epsilon_1: float, epsilon_2: float
    ) -> Ints:
        """(n,) valid actions for n rows of observations."""
        n = len(lanes)
        explores = self.rng.random(n) < epsilon_1
        at_random = self.rng.random(n) < epsilon_2
        actions = np.empty(n, np.int64)
        greedy = ~explores
        guided = explores & ~at_random
        if greedy.any():
            actions[greedy] = policy.act_batch(take_rows(observations, greedy), lanes[greedy])
        if guided.any():
            actions[guided] = self.guide.act_batch(take_rows(observations, guided), lanes[guided])
        for row in np.flatnonzero(explores & at_random):
            actions[row] = self.rng.choice(np.flatnonzero(observations["action_mask"][row]))
        return actions
