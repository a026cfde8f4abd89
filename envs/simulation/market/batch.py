"""One call for all lanes: the entry from Python into the compiled world."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.simulation.guards.guarded import guarded
from envs.simulation.guards.rules import Facts
from envs.simulation.market import columns as at
from envs.simulation.market.clock import step_lane
from envs.simulation.market.compiled import entry
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.observation import learn_facts, observe_lane
from envs.simulation.market.state import Floats, Ints, Lanes, Offers, Rules
from envs.simulation.snapshot import ObservationArrays


@entry
def step_lanes(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    facts: Facts,
    actions: Ints,
    active: NDArray[np.bool_],
    seen: ObservationArrays,
    rewards: Floats,
    done: NDArray[np.bool_],
) -> int:
    """Step every active lane and rewrite its observation; the first lane with an invalid action, else -1.

    Guards look at each action with the observation that it answers; `facts` is room for what else they know.
    """
    for lane in range(actions.shape[0]):
        if active[lane]:
            action = actions[lane]
            invalid = action < 0 or action >= seen.mask.shape[1] or lanes.lane[lane, at.STATUS] != at.RUNNING
            if invalid or seen.mask[lane, action] == 0:
                return lane
    n_places = offers.fixed.shape[0] + 1
    for lane in range(actions.shape[0]):
        rewards[lane] = 0.0
        done[lane] = True
        if active[lane]:
            row, place = divmod(actions[lane], n_places)
            job = lanes.window[lane, row]
            learn_facts(lanes, episodes, offers, rules, lane, job, place, facts)
            clusters, pairs = seen.clusters[lane], seen.pairs[lane]
            choices = seen.mask[lane, row * n_places : (row + 1) * n_places]
            place = guarded(clusters, seen.jobs[lane, row], pairs[row], choices, place, facts, rules.guards)
            rewards[lane] = step_lane(lanes, episodes, offers, rules, lane, row * n_places + place)
            done[lane] = lanes.lane[lane, at.STATUS] != at.RUNNING
            show_lane(lanes, episodes, offers, rules, lane, seen)
    return -1


@entry
def show_lane(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, seen: ObservationArrays
) -> None:
    """Rewrite the observation of one lane."""
    clusters, occupation, jobs = seen.clusters[lane], seen.occupation[lane], seen.jobs[lane]
    pairs, mask = seen.pairs[lane], seen.mask[lane]
    observe_lane(lanes, episodes, offers, rules, lane, clusters, occupation, jobs, pairs, mask)
