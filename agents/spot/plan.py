"""Value iteration over work left, slack, what runs, and the state of the zones.

With g the tick, d the restart overhead and s the slack that remains if the work is done on demand from now
on, running leaves s as it is, waiting costs g of it, and every start d. Below g the guarantee turns to on
demand for good. Costs are in ticks on demand.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT


@njit(cache=True, error_model="numpy")
def plan(
    n_work: int, n_slack: int, restart: float, price: Floats, goes_on: Floats, interrupted: Floats, step: int
) -> NDArray[np.uint8]:
    """The best choice everywhere.

    Args:
        n_work: ticks of work in all.
        n_slack: most ticks of slack.
        restart: d in ticks.
        price: (X,) of spot as a share of on demand in the zone chosen; inf in states without spot.
        goes_on: (X, X) chance that a state is followed by another and spot was not interrupted.
        interrupted: (X, X) likewise with the interruption of the zone chosen.
        step: ticks of work between two rows of the table.

    Returns:
        (3, W, n_slack + 1, X) NONE, SPOT or ON_DEMAND by what runs; row w is for `w * step` ticks of work or
        more.
    """
    n_states = len(price)
    follows = goes_on + interrupted
    before = np.zeros((3, n_slack + 1, n_states))  # values with a tick less of work
    values = np.zeros_like(before)
    table = np.zeros((3, n_work // step + 1, n_slack + 1, n_states), np.uint8)
    broken = np.zeros(n_states)
    for x in range(n_states):
        broken[x] = interrupted[x].sum()
    for work in range(1, n_work + 1):
        for s in range(n_slack + 1):
            if s == 0:
                values[NONE, 0], values[SPOT, 0], values[ON_DEMAND, 0] = work + restart, work + restart, work
                choice = np.full((3, n_states), ON_DEMAND, np.uint8)
            else:
                choice = _choose(
                    values, before, work, s, restart, price, goes_on, interrupted, follows, broken
                )
            if work % step == 0:
                table[:, work // step, s] = choice
                if work == step:
                    table[:, 0, s] = choice
        before, values = values, before
    return table


@linked()
def _after(
    values: Floats, before: Floats, kind: int, s: int, lost: float, x: int, work: int, restart: float
) -> float:
    """The value of running `kind` in slack s - lost; between two ticks of slack, in a straight line."""
    at = s - lost
    if at <= 0.0:
        return work + (restart if kind != ON_DEMAND else 0.0)
    low = int(at)
    part = at - low
    below = values[kind, low, x]
    if part == 0.0:
        return float(below)
    # This very cell is not known yet: it differs from the one below by as much as with less work.
    unknown = below + before[kind, s, x] - before[kind, low, x]
    above = values[kind, low + 1, x] if low + 1 < s else unknown
    return float(below + part * (above - below))


@linked()
def _choose(
    values: Floats,
    before: Floats,
    work: int,
    s: int,
    restart: float,
    price: Floats,
    goes_on: Floats,
    interrupted: Floats,
    follows: Floats,
    broken: Floats,
) -> NDArray[np.uint8]:
    """Fill values[:, s] and give the choices (3, X) there."""
    n_states = len(price)
    choice = np.zeros((3, n_states), np.uint8)
    wait = follows @ values[NONE, s - 1]
    lost = interrupted @ values[NONE, max(0, s - round(restart / 2) - 1)]
    run = goes_on @ before[SPOT, s] + interrupted @ before[NONE, s]
    stay = follows @ before[ON_DEMAND, s]
    for x in range(n_states):
        demand = restart + _after(values, before, ON_DEMAND, s, restart, x, work, restart)
        spot = np.inf
        spot_start = np.inf
        if price[x] < np.inf:
            spot = price[x] + run[x]
            kept = (1.0 - broken[x]) ** max(0.0, restart - 1.0)
            spot_start = restart * price[x] + kept * _after(
                values, before, SPOT, s, restart, x, work, restart
            )
            if kept < 1.0:
                spot_start += (1.0 - kept) * lost[x] / broken[x]
        best = min(wait[x], spot_start, demand)
        values[NONE, s, x] = best
        choice[NONE, x] = SPOT if best == spot_start else (NONE if best == wait[x] else ON_DEMAND)
        values[SPOT, s, x] = min(spot, demand, wait[x])
        choice[SPOT, x] = SPOT if spot <= min(demand, wait[x]) else ON_DEMAND
        values[ON_DEMAND, s, x] = min(1.0 + stay[x], spot_start)
        choice[ON_DEMAND, x] = SPOT if spot_start < 1.0 + stay[x] else ON_DEMAND
    return choice
