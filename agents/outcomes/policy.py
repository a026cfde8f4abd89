"""The agent `outcomes` as a policy, and its weights as something that can be saved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from agents.outcomes.decide import Label, Weighing, decide, decide_rows
from agents.outcomes.forward import Sizes, n_inputs, network_size
from agents.rules.choice import NO_ACTION, row_of
from agents.rules.expectation import ExpectedCostParameters
from agents.weighed_policy import WeighedPolicy, checked_weights
from envs.simulation.snapshot import Observation, arrays_of

WEIGHTS = 5
"""Own misses, mutual misses (not learned: owned hours stand for them), delay, money, owned hours."""


class Ensemble:
    """The weights of the networks.

    Args:
        members: M networks; none is trained yet.
        sizes: of each.

    Attributes:
        vectors: (M, network_size) float32.
    """

    def __init__(self, members: int, sizes: Sizes) -> None:
        self.sizes = sizes
        self.vectors = np.zeros((members, network_size(sizes)), np.float32)
        self.trained = False

    def set_vectors(self, vectors: NDArray[np.float32]) -> None:
        """Replace the weights.

        Raises:
            ValueError: for another shape, or a weight that is not finite.
        """
        if vectors.shape != self.vectors.shape:
            raise ValueError(f"expected weights of shape {self.vectors.shape}, got {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise ValueError("weights must be finite numbers")
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        self.trained = True

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights as tensors, for a checkpoint."""
        return {"vectors": torch.from_numpy(self.vectors.copy())}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Restore what `state_dict` gave. Raises RuntimeError if it does not fit, as torch's modules do."""
        try:
            self.set_vectors(state["vectors"].numpy())
        except (KeyError, ValueError) as error:
            raise RuntimeError(str(error)) from error


class OutcomePolicy(WeighedPolicy):
    """Takes the choice whose expected outcome for the job itself costs least (see `agents.outcomes.decide`).

    It decides about the most urgent job and follows `expected_cost` where another choice is hardly better,
    for tasks that train in rounds, and until it is trained.

    Args:
        network: the ensemble.
        weights: (5,) what the objective charges, see `WEIGHTS`; they may be changed at any time.
        name: shown in tables.
        batch_share: a late batch of a stream counts as this share of a missed deadline.
        margin: by which share of a decision's scale another choice must be better than the rule's.
        doubt: and by how many standard errors of the ensemble.
    """

    def __init__(
        self,
        network: Ensemble,
        weights: Sequence[float],
        name: str,
        batch_share: float = 0.2,
        margin: float = 0.1,
        doubt: float = 0.5,
    ) -> None:
        self.network = network
        self.name = name
        self.batch_share, self.margin, self.doubt = batch_share, margin, doubt
        self.rule = ExpectedCostParameters().vector()
        self.set_weights(weights)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Change what the objective charges.

        Raises:
            ValueError: for another number of weights, or one that is not finite.
        """
        self.weights = checked_weights(weights, WEIGHTS)
        miss, _, delay, money, owned = self.weights
        self.weighing = Weighing(
            miss, miss * self.batch_share, delay, money, owned, float(self.margin), float(self.doubt)
        )

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action.
        """
        return self.act_lanes(observations, np.arange(len(observations["jobs"])))

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied."""
        rows = np.ascontiguousarray(lanes)
        return self.explore(observations, rows, np.full(len(rows), -1.0), self.empty_label(len(rows)))

    def explore(
        self,
        observations: Observation,
        rows: NDArray[np.int64],
        explore: NDArray[np.float64],
        label: Label,
        follow_rule: bool = False,
    ) -> NDArray[np.int64]:
        """(n,) flat actions for some rows of the observations, some of them drawn among the candidates.

        Args:
            observations: with a leading axis.
            rows: (n,) which of them.
            explore: (n,) in [0, 1): which candidate; negative: the best one.
            label: row k is filled with what is to be kept of the k-th decision.
            follow_rule: take the rule's choice where none is drawn.

        Raises:
            ValueError: if an observation has no valid action.
        """
        actions = np.empty(len(rows), np.int64)
        decide_rows(
            arrays_of(observations),
            rows,
            self.rule,
            self._vectors(follow_rule),
            self.network.sizes,
            self.weighing,
            explore,
            label,
            actions,
        )
        if len(actions) and actions.min() == NO_ACTION:
            row = int(rows[np.argmin(actions)])
            raise ValueError(f"policy {self.name}: observation {row} offers no valid action, expected a job")
        return actions

    @property
    def value_weights(self) -> tuple[float, ...]:
        """(5,) what the objective charges."""
        return self.weights

    def value_table(self, observations: Observation) -> NDArray[np.float64]:
        """(n, J, C + 1, 5) expected values of what the most urgent job of each may choose; NaN elsewhere.

        In physical units, negative: own misses (of a one-shot job's), 0, hours of delay, USD, owned hours.
        """
        batch = arrays_of(observations)
        n, n_jobs = batch.jobs.shape[:2]
        n_targets = batch.clusters.shape[1] + 1
        found = np.full((n, n_jobs, n_targets, WEIGHTS), np.nan)
        label, values = self.empty_label(1), np.empty((n_targets, WEIGHTS))
        for k in range(n):
            row, vectors = row_of(batch, k), self._vectors(False)
            sizes, weighing = self.network.sizes, self.weighing
            action = decide(row, self.rule, vectors, sizes, weighing, -1.0, 0, label, values)
            if action != NO_ACTION:
                found[k, action // n_targets] = values
        return found

    def empty_label(self, n: int) -> Label:
        """Room for `n` decisions."""
        features = np.zeros((n, n_inputs(self.network.sizes)), np.float32)
        return Label(features, np.zeros((n, 4)), np.zeros(n), np.zeros(n))

    def _vectors(self, follow_rule: bool) -> NDArray[np.float32]:
        return self.network.vectors[:0] if follow_rule or not self.network.trained else self.network.vectors
