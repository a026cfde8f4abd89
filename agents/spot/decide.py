"""Choose the tick's action from the memory: best zone, state, value table, safety net.

As `agents.spot.belief`, these functions also run uncompiled in the leaderboard entries.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.spot.belief import PRICE, UP, bucket, dot, logistic, set_features, zone_features
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT, is_guaranteed, is_spot_safe


@inner
def best_zone(
    memory: Floats, going: Floats, risk: float, tick_s: float, scratch: Floats
) -> tuple[int, float]:
    """(zone with spot that costs least, chance that it has none in the next tick); (-1, 1.0) without any.

    An interruption costs as much as `risk` ticks on demand. Moving is free while spot runs, so the next tick
    is all that matters.
    """
    best = -1
    least = math.inf
    chance = 1.0
    for z in range(memory.shape[0] - 1):
        if memory[z, UP] == 0.0:
            continue
        zone_features(memory, z, tick_s, scratch)
        hazard = logistic(dot(going, scratch))
        cost = memory[z, PRICE] + risk * hazard
        if cost < least:
            best, least, chance = z, cost, hazard
    return best, chance


@inner
def state_of(
    memory: Floats,
    chance: float,
    coming: Floats,
    quality: Floats,
    going_edges: Floats,
    coming_edges: Floats,
    quality_edges: Floats,
    crowd: int,
    tick_s: float,
    scratch: Floats,
) -> int:
    """The state: hazard of the best zone and how many others have spot, or how soon any may; and quality.

    Args:
        memory: see `belief`.
        chance: hazard of the best zone.
        coming: (FEATURES,) of the chance that a zone without spot has some in the next tick.
        quality: (SET_FEATURES,) of the share of the next hours in which any zone has spot.
        going_edges: between buckets of hazard.
        coming_edges: between buckets of the chance that any zone has spot in the next tick.
        quality_edges: between buckets of quality.
        crowd: the largest number of zones with spot that is told apart.
        tick_s: length of a tick.
        scratch: (FEATURES,) room for features.
    """
    n_zones = memory.shape[0] - 1
    set_features(memory, tick_s, scratch)
    grade = bucket(dot(quality, scratch[: quality.shape[0]]), quality_edges)
    n_going = going_edges.shape[0] + 1
    if memory[n_zones, UP] > 0.0:
        place = bucket(chance, going_edges) * crowd + min(crowd, int(memory[n_zones, UP])) - 1
    else:
        none = 1.0
        for z in range(n_zones):
            zone_features(memory, z, tick_s, scratch)
            none *= 1.0 - logistic(dot(coming, scratch))
        place = n_going * crowd + bucket(1.0 - none, coming_edges)
    return int(place * (quality_edges.shape[0] + 1) + grade)


@inner
def proposal_of(
    table: NDArray[np.uint8],
    state: int,
    zone: int,
    runs: int,
    rem_s: int,
    left_s: int,
    ticks_left: int,
    tick_s: int,
    restart_s: int,
    work_step_s: int,
) -> int:
    """What to ask for: the table's choice, under a safety net that on demand can always end in time.

    Args:
        table: (3, W, S, X) choice by what runs, work left in steps, slack in ticks, and state.
        state: see `state_of`.
        zone: best zone with spot, or -1.
        runs: what runs now: NONE after an interruption.
        rem_s: overhead still to pay of what runs.
        left_s: work left.
        ticks_left: until the deadline.
        tick_s: length of a tick.
        restart_s: overhead of a start.
        work_step_s: seconds per step of W.
    """
    slack_s = ticks_left * tick_s - left_s - restart_s
    if runs != NONE:
        slack_s -= rem_s
    slack = min(table.shape[2] - 1, max(0, slack_s // tick_s))
    work = min(table.shape[1] - 1, left_s // work_step_s)
    choice = int(table[runs, work, slack, state])
    if choice == NONE:
        choice = runs  # what runs goes on
    if choice == SPOT and (
        zone < 0 or not is_spot_safe(runs, False, rem_s, left_s, ticks_left, tick_s, restart_s)
    ):
        choice = ON_DEMAND if zone >= 0 or runs == ON_DEMAND else NONE
    # Waiting is safe while the guarantee leaves the choice; it never lets a tick go by that on demand needs.
    if choice == NONE and is_guaranteed(left_s, ticks_left, tick_s, restart_s):
        choice = ON_DEMAND
    return choice
