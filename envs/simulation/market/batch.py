"""One call for all lanes: the entry from Python into the compiled world."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation.guards.guarded import guarded
from envs.simulation.guards.rules import Facts, no_facts
from envs.simulation.market import columns as at
from envs.simulation.market.clock import step_lane
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.observation import learn_facts, observe_lane
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
    """Step every active lane and rewrite its observation; the first lane with an invalid action, else -1.

    Guards look at each action with the observation that it answers.
    """
    for lane in range(actions.shape[0]):
        if active[lane]:
            action = actions[lane]
            invalid = action < 0 or action >= mask.shape[1] or lanes.lane[lane, at.STATUS] != at.RUNNING
            if invalid or mask[lane, action] == 0:
                return lane
    step_active(
        lanes, episodes, offers, rules, actions, active, no_facts(offers.fixed.shape[0]),
        clusters, occupation, jobs, pairs, mask, rewards, done,
    )  # fmt: skip
    return -1


@inner
def step_active(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    actions: Ints,
    active: NDArray[np.bool_],
    facts: Facts,
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    rewards: Floats,
    done: NDArray[np.bool_],
) -> None:
    """Step every active lane: a function of its own, so that references are counted once for all lanes."""
    n_places = offers.fixed.shape[0] + 1
    for lane in range(actions.shape[0]):
        rewards[lane] = 0.0
        done[lane] = True
        if active[lane]:
            row, place = divmod(actions[lane], n_places)
            job = lanes.window[lane, row]
            learn_facts(lanes, episodes, offers, rules, lane, job, place, facts)
            choices = mask[lane, row * n_places : (row + 1) * n_places]
            place = guarded(
                clusters[lane], jobs[lane, row], pairs[lane, row], choices, place, facts, rules.guards
            )
            rewards[lane] = step_lane(lanes, episodes, offers, rules, lane, row * n_places + place)
            done[lane] = lanes.lane[lane, at.STATUS] != at.RUNNING
            observe_lane(
                lanes, episodes, offers, rules, lane,
                clusters[lane], occupation[lane], jobs[lane], pairs[lane], mask[lane],
            )  # fmt: skip
