"""Learning from Monte-Carlo values: the replay, and the regression on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.networks import NetworkInput, ValueNetwork
from spotweave.agents.policy import Policy
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import (
    HISTORY_STEPS,
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    Observation,
    take_rows,
)

# What a network learns from: the latest decisions and their targets.


class Replay:
    """The latest decisions and their targets, drawn uniformly.

    Args:
        capacity: decisions kept.
        n_columns: of what the network is given; kept as float16.
        n_targets: of a decision.
        rng: draws samples.
    """

    def __init__(self, capacity: int, n_columns: int, n_targets: int, rng: np.random.Generator) -> None:
        self.columns = np.zeros((capacity, n_columns), np.float16)
        self.targets = np.zeros((capacity, n_targets), np.float32)
        self.rng = rng
        self.size = self.next = 0

    def add(self, columns: NDArray[np.float32], targets: NDArray[np.float32]) -> None:
        """Keep N decisions; the oldest make room."""
        rows = (self.next + np.arange(len(columns))) % len(self.columns)
        self.columns[rows], self.targets[rows] = columns, targets
        self.next = int((self.next + len(rows)) % len(self.columns))
        self.size = min(len(self.columns), self.size + len(rows))

    def sample(self, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Columns (n, n_columns) and targets (n, n_targets) of decisions drawn at random."""
        rows = self.rng.integers(0, self.size, n)
        columns, targets = torch.from_numpy(self.columns[rows]), torch.from_numpy(self.targets[rows])
        return columns.to(device).float(), targets.to(device)

    def state_dict(self) -> dict[str, Any]:
        """What is kept, and where the draws stand."""
        return {
            "columns": torch.from_numpy(self.columns[: self.size].copy()),
            "targets": torch.from_numpy(self.targets[: self.size].copy()),
            "next": self.next,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.size, self.next = len(state["columns"]), int(state["next"])
        self.columns[: self.size] = state["columns"].numpy()
        self.targets[: self.size] = state["targets"].numpy()
        self.rng.bit_generator.state = state["rng"]


# Replay of single decisions with their Monte-Carlo values (the knowledge buffer of Liu 2022, Fig. 4.2).


class DecisionReplay:
    """A ring of the latest decisions: what was seen, which cluster was chosen, what it was worth.

    Occupation is kept as float16 (ratios in 0..1), everything else that was seen as float32.

    Args:
        capacity: decisions kept (K = 50,000 in the thesis).
        n_clusters: C.
        n_components: K value components.
        rng: the run's "replay" stream.
    """

    def __init__(self, capacity: int, n_clusters: int, n_components: int, rng: np.random.Generator) -> None:
        self.capacity = capacity
        self.rng = rng
        self._added = 0
        self._columns: dict[str, NDArray[Any]] = {
            "clusters": np.zeros((capacity, n_clusters, N_CLUSTER_FIELDS), np.float32),
            "occupation": np.zeros((capacity, n_clusters, HISTORY_STEPS), np.float16),
            "jobs": np.zeros((capacity, N_JOB_FIELDS), np.float32),
            "pairs": np.zeros((capacity, n_clusters, N_PAIR_FIELDS), np.float32),
            "targets": np.zeros(capacity, np.int64),
            "values": np.zeros((capacity, n_components), np.float32),
        }

    @property
    def size(self) -> int:
        """Decisions held."""
        return min(self._added, self.capacity)

    def add(self, **columns: NDArray[Any]) -> Ints:
        """Append n decisions whose worth is not known yet; returns their ids (n,) for `fill`."""
        n = len(columns["targets"])
        ids = self._added + np.arange(n)
        where = ids % self.capacity
        for name, array in columns.items():
            self._columns[name][where] = array
        self._added += n
        return ids

    def fill(self, ids: Ints, values: NDArray[np.floating[Any]]) -> None:
        """Supplement the values (n, K) of decisions added before; those overwritten since are skipped."""
        kept = ids >= self._added - self.capacity
        self._columns["values"][ids[kept] % self.capacity] = values[kept]

    def sample(self, n: int, device: torch.device) -> tuple[NetworkInput, torch.Tensor, torch.Tensor]:
        """Uniformly drawn decisions: inputs with B = n and J = 1, chosen clusters (n,), values (n, K)."""
        return self.rows(self.rng.integers(0, self.size, n), device)

    def rows(self, rows: Ints, device: torch.device) -> tuple[NetworkInput, torch.Tensor, torch.Tensor]:
        """The decisions at the given places of the ring."""
        seen = {name: torch.from_numpy(array[rows]).to(device) for name, array in self._columns.items()}
        inputs = NetworkInput(
            clusters=seen["clusters"],
            occupation=seen["occupation"].float(),
            jobs=seen["jobs"][:, None],
            pairs=seen["pairs"][:, None],
        )
        return inputs, seen["targets"], seen["values"]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit."""
        kept = {name: torch.from_numpy(array[: self.size].copy()) for name, array in self._columns.items()}
        return {"columns": kept, "added": self._added, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._added = int(state["added"])
        for name, array in self._columns.items():
            array[: self.size] = state["columns"][name].numpy()
        self.rng.bit_generator.state = state["rng"]


# Multi-target regression of Monte-Carlo values (Liu 2022, sections 4.3.2 and 5.3.3).


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
