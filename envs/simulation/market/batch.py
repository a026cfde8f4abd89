"""One call for all lanes: the entry from Python into the compiled world."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation.market import columns as at
from envs.simulation.market.clock import step_lane
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.observation import observe_lane
from envs.simulation.market.state import Floats, Ints, Lanes, Offers, Rules
from envs.simulation.snapshot import FloatArray, MaskArray


@njit(cache=True, error_model="numpy", nogil=True)
def step_lanes(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    actions: Ints,
    active: NDArray[np.bool_],
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    rewards: Floats,
    done: NDArray[np.bool_],
) -> int:
    """Step every active lane and rewrite its observation; the first lane with an invalid action, else -1."""
    for lane in range(actions.shape[0]):
        if active[lane]:
            action = actions[lane]
            invalid = action < 0 or action >= mask.shape[1] or lanes.lane[lane, at.STATUS] != at.RUNNING
            if invalid or mask[lane, action] == 0:
                return lane
    for lane in range(actions.shape[0]):
        rewards[lane] = 0.0
        done[lane] = True
        if active[lane]:
            rewards[lane] = step_lane(lanes, episodes, offers, rules, lane, actions[lane])
            done[lane] = lanes.lane[lane, at.STATUS] != at.RUNNING
            observe_lane(
                lanes,
                episodes,
                offers,
                rules,
                lane,
                clusters[lane],
                occupation[lane],
                jobs[lane],
                pairs[lane],
                mask[lane],
            )
    return -1
