"""The learned policy for one job on spot zones: remembers the zones, looks up the value of slack."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spotweave.agents.policy import Policy
from spotweave.agents.spot.belief import FEATURES, MEMORY, TICKS, remember
from spotweave.agents.spot.decide import best_zone, proposal_of, state_of
from spotweave.agents.spot.model import SpotModel
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import FloatArray, Observation
from spotweave.envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT


class SpotPolicy(Policy):
    """Decides every tick of a `spotweave/Spot-v0` episode; never late where on demand could avoid it.

    It sees what any policy sees, and remembers per lane what the zones were since the job began.

    Args:
        network: what was learned.
        name: shown in tables.
    """

    def __init__(self, network: SpotModel, name: str) -> None:
        self.network = network
        self.name = name
        self._memory: dict[int, Floats] = {}

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane: forget its zones."""
        self._memory.pop(lane, None)

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if the ticks of the world are not those that it was trained for.
        """
        actions = np.empty(len(lanes), np.int64)
        for row, lane in enumerate(lanes.tolist()):
            clusters, jobs, pairs = (observations[key][row] for key in ("clusters", "jobs", "pairs"))
            n_zones = clusters.shape[0] - 1
            memory = self._memory.get(lane)
            if memory is None or memory.shape[0] != n_zones + 1 or jobs[0, col.AGE_S] == 0.0:
                memory = self._memory[lane] = np.zeros((n_zones + 1, MEMORY))
            if jobs[0, col.SLACK_S] % self.network.beliefs.tick_s:
                raise ValueError(
                    f"policy {self.name!r} was trained for ticks of {self.network.beliefs.tick_s} s, and the "
                    f"{jobs[0, col.SLACK_S]:.0f} s to the deadline are no multiple: use env.rules as trained"
                )
            actions[row] = self._decide(memory, clusters, jobs[0], pairs[0])
        return actions

    def _decide(self, memory: Floats, clusters: FloatArray, job: FloatArray, pairs: FloatArray) -> int:
        model, beliefs = self.network, self.network.beliefs
        nearest = int(np.argmin(np.abs(model.restarts_s - job[col.RESTART_S])))
        return int(
            _answer(
                memory,
                clusters,
                job,
                pairs,
                *beliefs.arrays,
                beliefs.risk,
                beliefs.crowd,
                beliefs.tick_s,
                model.table[nearest],
                model.work_step_s,
            )
        )


@njit(cache=True, error_model="numpy")
def _answer(
    memory: Floats,
    clusters: FloatArray,
    job: FloatArray,
    pairs: FloatArray,
    going: Floats,
    coming: Floats,
    quality: Floats,
    going_edges: Floats,
    coming_edges: Floats,
    quality_edges: Floats,
    risk: float,
    crowd: int,
    tick_s: int,
    table: NDArray[np.uint8],
    work_step_s: int,
) -> int:
    """The action of one observation; a tick that was remembered before is not remembered again."""
    n_zones = clusters.shape[0] - 1
    if memory[n_zones, TICKS] <= job[col.AGE_S] / tick_s:
        up = np.zeros(n_zones)
        price = np.zeros(n_zones)
        for z in range(n_zones):
            up[z] = clusters[z, col.AVAILABLE]
            price[z] = clusters[z, col.PRICE_USD_HOUR] / clusters[n_zones, col.PRICE_USD_HOUR]
        remember(memory, up, price, float(tick_s))
    scratch = np.zeros(FEATURES)
    zone, chance = best_zone(memory, going, risk, float(tick_s), scratch)
    state = state_of(
        memory,
        chance,
        coming,
        quality,
        going_edges,
        coming_edges,
        quality_edges,
        crowd,
        float(tick_s),
        scratch,
    )
    here = -1
    for c in range(n_zones + 1):
        if pairs[c, col.HERE] > 0.0:
            here = c
    left_s = int(job[col.DURATION_S])
    runs, rem_s = NONE, 0
    if here >= 0:
        runs = SPOT if here < n_zones else ON_DEMAND
        rem_s = int(pairs[here, col.EXECUTION_S]) - left_s
    choice = proposal_of(
        table,
        state,
        zone,
        runs,
        rem_s,
        left_s,
        int(job[col.SLACK_S]) // tick_s,
        tick_s,
        int(job[col.RESTART_S]),
        work_step_s,
    )
    target = n_zones + 1
    if choice == SPOT:
        target = zone
    elif choice == ON_DEMAND:
        target = n_zones
    # Where it runs already is no action: "none" leaves it there.
    return int(n_zones + 1 if target == here else target)
