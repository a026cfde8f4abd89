"""The one interface that every rule and network implements, in simulation and live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import Category, FloatArray, Observation, take_rows


class Policy(ABC):
    """Chooses, for what it sees, one task and its cluster (or none for now).

    A policy may serve many lanes (copies of a world) at once; whatever it remembers is kept per lane.
    """

    name: str  # shown in tables

    def begin(self, lane: int, seed: int) -> None:  # noqa: B027 - most policies remember nothing
        """Start an episode in a lane: forget the lane's memory and restart its own random stream."""

    @abstractmethod
    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for observations with a leading axis of n; row k belongs to lane lanes[k]."""

    def act_lanes(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for the rows `lanes` of observations of all lanes, as a world shows them."""
        return self.act_batch(take_rows(observations, lanes), lanes)

    def act(self, observation: Observation) -> int:
        """The flat action for one observation (lane 0)."""
        batched = cast(Observation, {name: np.asarray(array)[None] for name, array in observation.items()})
        return int(self.act_batch(batched, np.zeros(1, np.int64))[0])


# One policy for everything that arrives, made of two: one for federated tasks, one for all others.


class ByKind(Policy):
    """The first job of the window is decided by the policy of its kind, which does not see the other kind.

    A policy that was trained with both kinds needs none of this.

    Args:
        others: decides about Spark jobs.
        federated: decides about clients and servers of federated applications, one at a time.
    """

    def __init__(self, others: Policy, federated: Policy) -> None:
        self.name = "+".join(dict.fromkeys([others.name, federated.name]))
        self.others = others
        self.federated = federated

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane."""
        self.others.begin(lane, seed)
        self.federated.begin(lane, seed)

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions."""
        federated = observations["jobs"][..., col.CATEGORY] == Category.FEDERATED
        actions = np.empty(len(federated), np.int64)
        for first in np.unique(federated[:, 0]):
            rows = np.flatnonzero(federated[:, 0] == first)
            shown = take_rows(observations, rows)
            if first:
                n_choices = shown["clusters"].shape[1] + 1
                shown["jobs"], shown["pairs"] = shown["jobs"][:, :1], shown["pairs"][:, :1]
                shown["action_mask"] = shown["action_mask"][:, :n_choices]
            else:
                hidden = federated[rows]
                shown["jobs"][hidden] = 0.0
                shown["pairs"][hidden] = 0.0
                shown["action_mask"].reshape(len(rows), hidden.shape[1], -1)[hidden] = 0
            policy = self.federated if first else self.others
            actions[rows] = policy.act_batch(shown, lanes[rows])
        return actions


BOUND = 6.0  # bound of every column in its own unit


class Question(NamedTuple):
    """n decisions about one task each; C places, then "none for now"."""

    valid: NDArray[np.bool_]  # (n, C + 1)
    cost: NDArray[np.float64]  # (n, C + 1) USD expected by the rule
    unit: NDArray[np.float64]  # (n,) USD, a measure of what the decision is about
    task: FloatArray  # (n, T) columns of each task
    choice: FloatArray  # (n, C + 1, K) of each of its choices


def bounded(columns: NDArray[np.float64]) -> FloatArray:
    """Columns as a network reads them."""
    return np.clip(columns, -BOUND, BOUND).astype(np.float32)
