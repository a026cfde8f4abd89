"""The agent `mtdqn` as a policy, and its weights as something that can be saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from agents.mtdqn.columns import N_COMMITTED_COLUMNS, N_PLACE_COLUMNS
from agents.mtdqn.decide import GREEDY, Label, decide_rows, empty_label, next_job, values_of
from agents.mtdqn.forward import DELAY, HEADS, MUTUAL, N_OWN, OWN_MISSES, Sizes, n_columns, network_size
from agents.rules.choice import NO_ACTION, row_of
from agents.rules.committed import CommittedParameters
from agents.rules.tuned import TunedParameters
from agents.weighed_policy import WeighedPolicy, checked_weights
from envs.simulation.snapshot import Observation, arrays_of


class Weights:
    """The weights of the network: one vector, empty until it is trained.

    Args:
        sizes: of the network.

    Attributes:
        vector: (network_size,) float32, or (0,) before any training.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.vector = np.zeros(0, np.float32)

    @property
    def trained(self) -> bool:
        """Whether there are weights."""
        return len(self.vector) > 0

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Replace the weights.

        Raises:
            ValueError: for another length, or a weight that is not finite.
        """
        if vector.shape != (network_size(self.sizes),):
            raise ValueError(f"expected {network_size(self.sizes)} weights, got an array of {vector.shape}")
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


def sizes_for(guide: Literal["tuned", "committed"], lstm: int, own: int, mutual: int) -> Sizes:
    """The sizes of a network whose guide is this rule."""
    places = N_COMMITTED_COLUMNS if guide == "committed" else N_PLACE_COLUMNS
    return Sizes(places, lstm, own, mutual)


class MTDQNPolicy(WeighedPolicy):
    """Puts the next job of the guide's order where its weighed values are largest.

    Until it is trained it acts as its guide.

    Args:
        network: the weights.
        weights: (3,) of own misses, the mutual value and the delay, as the objective charges them; they may
            be changed at any time.
        name: shown in tables.
    """

    def __init__(self, network: Weights, weights: Sequence[float], name: str) -> None:
        self.network = network
        self.name = name
        committed = network.sizes.places == N_COMMITTED_COLUMNS
        self.rule = (CommittedParameters() if committed else TunedParameters()).vector()
        self._nothing_kept = empty_label(0, network.sizes)
        self.set_weights(weights)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Change the weights of the values.

        Raises:
            ValueError: for another number of weights, or one that is not finite.
        """
        self.weights = checked_weights(weights, HEADS)
        misses, mutual, delay = self.weights
        # In missed deadlines, which is what the mutual value is learned in.
        unit = misses if misses > 0.0 else 1.0
        self.of_heads = np.array([misses, delay, mutual], np.float32) / np.float32(unit)

    @property
    def value_weights(self) -> tuple[float, ...]:
        """(3,) weights of the values."""
        return self.weights

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action.
        """
        return self.act_lanes(observations, np.arange(len(observations["jobs"])))

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied."""
        rows = np.ascontiguousarray(lanes)
        n, follow = len(rows), not self.network.trained
        how, draws, take = np.full(n, GREEDY), np.zeros(n), np.zeros(n, np.bool_)
        return self.explore(observations, rows, how, draws, take, self._nothing_kept, follow)

    def explore(
        self,
        observations: Observation,
        rows: NDArray[np.int64],
        how: NDArray[np.int64],
        draws: NDArray[np.float64],
        take: NDArray[np.bool_],
        label: Label,
        follow: bool,
    ) -> NDArray[np.int64]:
        """(n,) flat actions for some rows of the observations (see `agents.mtdqn.decide.decide`).

        Raises:
            ValueError: if an observation has no valid action.
        """
        actions = np.empty(len(rows), np.int64)
        decide_rows(
            arrays_of(observations),
            rows,
            self.rule,
            self.network.vector,
            self.network.sizes,
            self.of_heads,
            follow,
            how,
            draws,
            take,
            label,
            actions,
        )
        if len(actions) and actions.min() == NO_ACTION:
            row = int(rows[np.argmin(actions)])
            raise ValueError(f"policy {self.name}: observation {row} offers no valid action, expected a job")
        return actions

    def value_table(self, observations: Observation) -> NDArray[np.float64]:
        """(n, J, C + 1, 3) values of the job that each would decide on every place; NaN elsewhere.

        In the order of the weights: own misses, the mutual value (in misses), delay.
        """
        batch = arrays_of(observations)
        n, n_jobs = batch.jobs.shape[:2]
        n_clusters = batch.clusters.shape[1]
        found = np.full((n, n_jobs, n_clusters + 1, HEADS), np.nan)
        sizes = self.network.sizes
        columns = np.empty((n_clusters, n_columns(sizes)), np.float32)
        known, needs = np.empty((n_clusters, N_OWN), np.float32), np.empty(n_clusters, np.float32)
        values = np.empty((n_clusters, HEADS), np.float32)
        for k in range(n):
            obs = row_of(batch, k)
            job = next_job(obs, sizes)
            if job >= 0:
                values_of(obs, job, self.network.vector, sizes, columns, known, needs, values)
                found[k, job, :n_clusters] = values[:, [OWN_MISSES, MUTUAL, DELAY]]
        return found
