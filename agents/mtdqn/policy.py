"""The agent `mtdqn` as a policy, and its weights as something that can be saved."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray

from spotweave.agents.mtdqn.decide import Acting, Exploring, Label, empty_label, greedy
from spotweave.agents.mtdqn.forward import network_size
from spotweave.agents.mtdqn.view import View
from spotweave.agents.rules.choice import NO_ACTION
from spotweave.agents.value_policy import WeighedPolicy, checked_weights
from spotweave.envs.simulation.snapshot import Observation, arrays_of


class Weights:
    """The weights of the network: one vector, empty until it is trained.

    Args:
        size: of the vector.

    Attributes:
        vector: (size,) float32, or (0,) before any training.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.vector = np.zeros(0, np.float32)

    @property
    def trained(self) -> bool:
        """Whether there are weights."""
        return len(self.vector) > 0

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Replace the weights. Raises ValueError for another length, or a weight that is not finite."""
        if vector.shape != (self.size,):
            raise ValueError(f"expected {self.size} weights, got an array of {vector.shape}")
        if not np.isfinite(vector).all():
            raise ValueError("weights must be finite numbers")
        self.vector = np.ascontiguousarray(vector, np.float32)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights as tensors, for a checkpoint."""
        return {"vector": torch.from_numpy(self.vector.copy())}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Restore what `state_dict` gave. Raises RuntimeError if it does not fit, as torch's modules do."""
        try:
            if len(vector := state["vector"].numpy()):
                self.set_vector(vector)
        except (KeyError, ValueError) as error:
            raise RuntimeError(str(error)) from error


class MTDQNPolicy(WeighedPolicy):
    """Puts the next job of the guide's order where its weighed values are largest.

    Until it is trained it acts as its guide.

    Args:
        view: how the tasks of its world are seen.
        weights: what the objective charges, for each of the world's components; they may be changed at any
            time.
        name: shown in tables.
        margin: another choice than the guide's must be better by this share of what the decision is about.
    """

    def __init__(self, view: View, weights: Sequence[float], name: str, margin: float = 0.0) -> None:
        self.view = view
        self.network = Weights(network_size(view.sizes))
        self.name = name
        self.margin = margin
        self._nothing_kept = empty_label(0, view.sizes)
        self._nothing_shown = np.zeros((0, 0, 0), np.float32)
        self._weigh(weights)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Change the weights of the values.

        Raises:
            ValueError: for another number of weights, one that is not finite, or where they are fixed.
        """
        if not self.view.whole_episodes:
            self._weigh(weights)
        elif tuple(weights) != self.value_weights:
            raise ValueError(
                f"policy {self.name} learned the objective itself: leave the weights out, or train again"
            )

    def _weigh(self, weights: Sequence[float]) -> None:
        self.weights = checked_weights(weights, self.view.sizes.heads + 1)
        self.of_heads = self.view.of_heads(self.weights)

    @property
    def value_weights(self) -> tuple[float, ...]:
        """(K,) weights of what `value_table` gives."""
        return (1.0,) if self.view.whole_episodes else self.weights

    def acting(self, follow: bool) -> Acting:
        """How it decides now; `follow`: as its guide does."""
        vector = self.network.vector
        return Acting(self.view.rule, vector, self.view.sizes, self.of_heads, float(self.margin), follow)

    def members(self) -> list[MTDQNPolicy]:
        """A policy for each of its networks, which acts by that one alone."""
        sizes, vector = self.view.sizes, self.network.vector
        view = copy(self.view)
        view.sizes = sizes._replace(networks=1)
        found = [MTDQNPolicy(view, self.weights, self.name, self.margin) for _ in range(sizes.networks)]
        if self.network.trained:
            mutual = network_size(sizes) - network_size(sizes._replace(mutual=0))
            size = network_size(sizes._replace(networks=2)) - network_size(view.sizes)
            first = len(vector) - mutual - sizes.networks * size
            common, owns, rest = np.split(vector, [first, len(vector) - mutual])
            for policy, own in zip(found, np.split(owns, sizes.networks), strict=True):
                policy.network.set_vector(np.concatenate([common, own, rest]))
        return found

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action.
        """
        return self.act_lanes(observations, np.arange(len(observations["jobs"])))

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied."""
        rows = np.ascontiguousarray(lanes)
        exploring = greedy(len(rows), observations["jobs"].shape[1])
        return self.explore(observations, rows, exploring, self._nothing_kept, not self.network.trained)

    def explore(
        self,
        observations: Observation,
        rows: NDArray[np.int64],
        exploring: Exploring,
        label: Label,
        follow: bool,
    ) -> NDArray[np.int64]:
        """(n,) flat actions for some rows of the observations (see `agents.mtdqn.decide`).

        Args:
            observations: with a leading axis.
            rows: (n,) which of them.
            exploring: how each explores.
            label: its first n rows are filled, unless it is empty.
            follow: the guide's choice counts as the greedy one.

        Raises:
            ValueError: if an observation has no valid action.
        """
        actions = np.empty(len(rows), np.int64)
        batch = arrays_of(observations)
        self.view.decide_rows(
            batch, rows, self.acting(follow), exploring, label, self._nothing_shown, actions
        )
        if len(actions) and actions.min() == NO_ACTION:
            row = int(rows[np.argmin(actions)])
            raise ValueError(f"policy {self.name}: observation {row} offers no valid action, expected a job")
        return actions

    def value_table(self, observations: Observation) -> NDArray[np.float64]:
        """(n, J, C + 1, K) values of the job that each would decide, of every choice; NaN elsewhere.

        In the order of the weights: own misses, the mutual value (in misses), delay and what else there is.
        Where the weights are fixed, their sum (K = 1).
        """
        batch = arrays_of(observations)
        (n, n_jobs), n_targets = batch.jobs.shape[:2], batch.clusters.shape[1] + 1
        heads = self.view.sizes.heads
        values = np.full((n, n_targets, heads + 1), np.nan, np.float32)
        actions = np.empty(n, np.int64)
        exploring, acting = greedy(n, n_jobs), self.acting(not self.network.trained)
        self.view.decide_rows(batch, np.arange(n), acting, exploring, self._nothing_kept, values, actions)
        (decided,) = np.nonzero(actions != NO_ACTION)
        values = values[decided]
        if self.view.whole_episodes:
            values = (values @ self.of_heads)[..., None]
        else:
            values = values[..., [0, heads, *range(1, heads)]]
        found = np.full((n, n_jobs, n_targets, len(self.value_weights)), np.nan)
        found[decided, actions[decided] // n_targets] = values
        return found
