"""A rule as a Policy: the compiled kernel, its parameters and the memory of each lane."""

from __future__ import annotations

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.agents.rules.choice import MEMORY_SIZE, NO_ACTION, begin_memory
from spotweave.agents.rules.kernels import answers
from spotweave.agents.rules.registry import RuleParameters
from spotweave.envs.simulation.compiled import Kernel
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import Observation, contiguous

_SEED_BITS = (1 << 63) - 1


class RulePolicy(Policy):
    """One rule of the literature behind the common interface.

    A lane that was never begun behaves as if begun with seed 0.

    Attributes:
        name: registered name of the rule.
        parameters: what `vector` was made from.
        vector: (P,) float64 parameters as the kernel reads them.
        memory: (lanes, MEMORY_SIZE) float64, a row per lane; grows with the highest lane begun.
    """

    def __init__(
        self, name: str, choose: Kernel, parameters: RuleParameters, keeps_idle: bool = True
    ) -> None:
        self.name = name
        self._answer, self._answer_rows = answers(choose, keeps_idle)
        self.parameters = parameters
        self.vector: Floats = parameters.vector()
        self.memory: Floats = np.empty((0, MEMORY_SIZE), np.float64)
        self._grow(1)

    def _grow(self, lanes: int) -> None:
        """Have at least `lanes` rows of memory."""
        have = len(self.memory)
        if lanes > have:
            grown = np.empty((max(lanes, 2 * have), MEMORY_SIZE), np.float64)
            grown[:have] = self.memory
            for lane in range(have, len(grown)):
                begin_memory(grown[lane], 0)
            self.memory = grown
            self._lane_zero = grown[0]

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane: its memory follows from the seed only."""
        if lane < 0:
            raise ValueError(f"lane must be >= 0, got {lane}")
        self._grow(lane + 1)
        begin_memory(self.memory[lane], seed & _SEED_BITS)

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action, or there are not as many lanes as observations.
        """
        n = len(observations["jobs"])
        lanes = np.ascontiguousarray(lanes, np.int64)
        if lanes.shape != (n,):
            raise ValueError(f"got {n} observations and lanes of shape {lanes.shape}, expected ({n},)")
        return self._choose(observations, np.arange(n), lanes)

    def act_lanes(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied.

        Raises:
            ValueError: if one of these observations has no valid action.
        """
        lanes = np.ascontiguousarray(lanes, np.int64)
        return self._choose(observations, lanes, lanes)

    def _choose(self, observations: Observation, rows: Ints, lanes: Ints) -> Ints:
        actions = np.empty(len(lanes), np.int64)
        if len(lanes) == 0:
            return actions
        if lanes.min() < 0:
            raise ValueError(f"lanes must be >= 0, got {int(lanes.min())}")
        self._grow(int(lanes.max()) + 1)
        self._answer_rows(*contiguous(observations), rows, lanes, self.memory, self.vector, actions)
        if actions.min() == NO_ACTION:
            row = int(rows[np.argmin(actions)])
            raise ValueError(f"rule {self.name}: observation {row} offers no valid action, expected a job")
        return actions

    def act(self, observation: Observation) -> int:
        """The flat action for one observation (lane 0), without the detour over a batch.

        Raises:
            ValueError: if the observation has no valid action.
        """
        action = int(self._answer(*contiguous(observation), self._lane_zero, self.vector))
        if action == NO_ACTION:
            raise ValueError(f"rule {self.name}: the observation offers no valid action, expected a job")
        return action
