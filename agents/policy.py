"""The one interface that every rule and network implements, in simulation and live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from envs.simulation.snapshot import Observation, take_rows


class Policy(ABC):
    """Chooses, for what it sees, one task and its cluster (or none for now).

    A policy may serve many lanes (copies of a world) at once; whatever it remembers is kept per lane.

    Attributes:
        name: shown in tables.
    """

    name: str

    def begin(self, lane: int, seed: int) -> None:  # noqa: B027 - most policies remember nothing
        """Start an episode in a lane: forget the lane's memory and restart its own random stream."""

    @abstractmethod
    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n; row k belongs to lane lanes[k]."""

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for the rows `lanes` of observations of all lanes, as a world shows them."""
        return self.act_batch(take_rows(observations, lanes), lanes)

    def act(self, observation: Observation) -> int:
        """The flat action for one observation (lane 0)."""
        batched = cast(Observation, {name: np.asarray(array)[None] for name, array in observation.items()})
        return int(self.act_batch(batched, np.zeros(1, np.int64))[0])
