"""Fit a policy's beliefs to recorded ticks: chances, qualities, states and their transitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spotweave.agents.registry import SpotSettings
from spotweave.agents.spot.belief import (
    FEATURES,
    MEMORY,
    PRICE,
    SET_FEATURES,
    UP,
    remember,
    set_features,
    zone_features,
)
from spotweave.agents.spot.decide import best_zone, state_of
from spotweave.agents.spot.model import Beliefs, SpotModel
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT

PENALTY = 1.0  # ridge penalty of the regressions
NEWTON_STEPS = 12
QUALITY_S = 12 * 3600  # quality is the share of so much time in which any zone has spot


@dataclass(frozen=True)
class SpotTicks:
    """A recorded stretch: has_spot (T, Z), price (T, Z) as a share of on demand."""

    has_spot: Floats
    price: Floats


@njit(cache=True, error_model="numpy")
def _features(has_spot: Floats, price: Floats, tick_s: float) -> tuple[Floats, Floats]:
    """(T, Z, FEATURES) of the zones and (T, SET_FEATURES) of all of them, as remembered at each tick."""
    n, n_zones = has_spot.shape
    memory = np.zeros((n_zones + 1, MEMORY))
    zones = np.zeros((n, n_zones, FEATURES))
    sets = np.zeros((n, SET_FEATURES))
    for t in range(n):
        remember(memory, has_spot[t], price[t], tick_s)
        for z in range(n_zones):
            zone_features(memory, z, tick_s, zones[t, z])
        set_features(memory, tick_s, sets[t])
    return zones, sets


@njit(cache=True, error_model="numpy")
def _walk(
    has_spot: Floats, price: Floats, tick_s: float, going: Floats, coming: Floats, risk: float
) -> tuple[Ints, Floats, Floats]:
    """For every tick: best zone (-1: none), its hazard, and the chance that any zone has spot next."""
    n, n_zones = has_spot.shape
    memory = np.zeros((n_zones + 1, MEMORY))
    zone = np.full(n, -1)
    hazard = np.ones(n)
    back = np.zeros(n)
    scratch = np.zeros(FEATURES)
    for t in range(n):
        remember(memory, has_spot[t], price[t], tick_s)
        zone[t], hazard[t] = best_zone(memory, going, risk, tick_s, scratch)
        none = 1.0
        for z in range(n_zones):
            zone_features(memory, z, tick_s, scratch)
            x = 0.0
            for k in range(FEATURES):
                x += coming[k] * scratch[k]
            none *= 1.0 - 1.0 / (1.0 + np.exp(-x))
        back[t] = 1.0 - none
    return zone, hazard, back


def logistic_fit(features: Floats, happened: Bools) -> Floats:
    """(F,) weights of a logistic regression with a small ridge penalty, by Newton's method."""
    weights = np.zeros(features.shape[1])
    weights[0] = np.log((happened.mean() + 1e-6) / (1 - happened.mean() + 1e-6))
    ridge = np.full(len(weights), PENALTY)
    ridge[0] = 1e-6
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        slope = features.T @ (chance - happened) + ridge * weights
        curve = (features * (chance * (1 - chance))[:, None]).T @ features + np.diag(ridge)
        weights = weights - np.linalg.solve(curve, slope)
    return weights


def fit(
    stretches: list[SpotTicks], tick_s: int, risk: float, shape: tuple[int, int, int], crowd: int
) -> Beliefs:
    """What to believe, from stretches that each begin without a memory.

    Args:
        stretches: recorded ticks.
        tick_s: length of a tick, seconds.
        risk: cost of an interruption, in ticks on demand.
        shape: numbers of buckets of hazard, return and quality.
        crowd: the largest number of zones with spot that is told apart.
    """
    n_going, n_coming, n_quality = shape
    seen = [_features(part.has_spot, part.price, float(tick_s)) for part in stretches]
    rows: list[Floats] = []
    ups: list[Bools] = []
    nexts: list[Bools] = []
    set_rows: list[Floats] = []
    goods: list[Floats] = []
    ahead = QUALITY_S // tick_s
    for part, (zones, sets) in zip(stretches, seen, strict=True):
        rows.append(zones[:-1].reshape(-1, FEATURES))
        ups.append(part.has_spot[:-1].reshape(-1) > 0)
        nexts.append(part.has_spot[1:].reshape(-1) > 0)
        total = np.concatenate([[0.0], np.cumsum(part.has_spot.max(axis=1))])
        last = max(0, len(sets) - ahead)
        set_rows.append(sets[:last])
        goods.append((total[ahead : ahead + last] - total[:last]) / ahead)
    features, up, after = np.concatenate(rows), np.concatenate(ups), np.concatenate(nexts)
    going = logistic_fit(features[up], ~after[up])
    coming = logistic_fit(features[~up], after[~up])
    known, good = np.concatenate(set_rows), np.concatenate(goods)
    quality = np.linalg.solve(known.T @ known + PENALTY * np.eye(SET_FEATURES), known.T @ good)
    walks = [_walk(part.has_spot, part.price, float(tick_s), going, coming, risk) for part in stretches]
    found = np.concatenate([zone >= 0 for zone, _, _ in walks])
    hazards = np.concatenate([hazard for _, hazard, _ in walks])[found]
    backs = np.concatenate([back for _, _, back in walks])[~found]
    grades = np.concatenate([sets @ quality for _, sets in seen])
    return Beliefs(
        going=going,
        coming=coming,
        quality=np.asarray(quality, np.float64),
        going_edges=_edges(hazards, n_going),
        coming_edges=_edges(backs, n_coming),
        quality_edges=_edges(grades, n_quality),
        risk=risk,
        crowd=crowd,
        tick_s=tick_s,
    )


def _edges(values: Floats, n: int) -> Floats:
    """(n - 1,) edges between n buckets with as many values each."""
    if len(values) == 0:
        return np.zeros(n - 1)
    return np.quantile(values, np.arange(1, n) / n)


@njit(cache=True, error_model="numpy")
def _count(
    has_spot: Floats,
    price: Floats,
    tick_s: float,
    going: Floats,
    coming: Floats,
    quality: Floats,
    going_edges: Floats,
    coming_edges: Floats,
    quality_edges: Floats,
    risk: float,
    crowd: int,
    goes_on: Floats,
    interrupted: Floats,
    paid: Floats,
) -> None:
    """Add a stretch's ticks to the counts (X, X) of followers and (X, 2) of prices."""
    n, n_zones = has_spot.shape
    memory = np.zeros((n_zones + 1, MEMORY))
    scratch = np.zeros(FEATURES)
    last_zone, last = -1, -1
    for t in range(n):
        remember(memory, has_spot[t], price[t], tick_s)
        zone, chance = best_zone(memory, going, risk, tick_s, scratch)
        state = state_of(
            memory, chance, coming, quality, going_edges, coming_edges, quality_edges, crowd, tick_s, scratch
        )
        if zone >= 0:
            paid[state, 0] += memory[zone, PRICE]
            paid[state, 1] += 1.0
        if last >= 0:
            if last_zone >= 0 and memory[last_zone, UP] == 0.0:
                interrupted[last, state] += 1.0
            else:
                goes_on[last, state] += 1.0
        last_zone, last = zone, state


def chain(stretches: list[SpotTicks], beliefs: Beliefs) -> tuple[Floats, Floats, Floats]:
    """How states follow each other: price (X,), goes_on (X, X), interrupted (X, X), as `plan` takes them."""
    n_states = beliefs.n_states
    goes_on, interrupted = np.zeros((n_states, n_states)), np.zeros((n_states, n_states))
    paid = np.zeros((n_states, 2))
    for part in stretches:
        _count(
            part.has_spot,
            part.price,
            float(beliefs.tick_s),
            *beliefs.arrays,
            beliefs.risk,
            beliefs.crowd,
            goes_on,
            interrupted,
            paid,
        )
    # A state that was never seen stays as it is: nothing leads to it.
    total = (goes_on + interrupted).sum(axis=1)
    goes_on[np.diag_indices(n_states)] += total == 0
    total = np.maximum(1.0, total)[:, None]
    up = np.arange(n_states) // (len(beliefs.quality_edges) + 1) < beliefs.up_places
    mean = paid[:, 0].sum() / max(1.0, paid[:, 1].sum())
    price = np.where(paid[:, 1] > 0, paid[:, 0] / np.maximum(1.0, paid[:, 1]), mean)
    return np.where(up, price, np.inf), goes_on / total, interrupted / total


# From recorded stretches to a `SpotModel`: fit, chain, plan.

WORK_STEP_S = 3600


def learn(
    stretches: Sequence[SpotTicks],
    settings: SpotSettings,
    tick_s: int,
    work_s: int,
    slack_s: int,
    restarts_s: Sequence[int],
) -> SpotModel:
    """The model that follows from recorded stretches.

    Args:
        stretches: each begins without a memory, as a job does.
        settings: buckets and the price of an interruption.
        tick_s: length of a tick.
        work_s: most work of a job.
        slack_s: most time until the deadline beyond the work.
        restarts_s: overheads of a start to plan for.
    """
    crowd = 1 if all(part.has_spot.shape[1] == 1 for part in stretches) else settings.crowd
    shape = settings.hazard_buckets, settings.return_buckets, settings.quality_buckets
    beliefs = fit(list(stretches), tick_s, settings.risk, shape, crowd)
    price, goes_on, interrupted = chain(list(stretches), beliefs)
    step = max(1, WORK_STEP_S // tick_s)
    n_work, n_slack = -(-work_s // tick_s), max(1, slack_s // tick_s)
    tables = [
        plan(n_work, n_slack, restart_s / tick_s, price, goes_on, interrupted, step)
        for restart_s in restarts_s
    ]
    return SpotModel(beliefs, np.array(restarts_s, np.int64), np.stack(tables), step * tick_s)


# Value iteration over work left, slack, what runs, and the state of the zones.
#
# With g the tick, d the restart overhead and s the slack that remains if the work is done on demand from
# now on, running leaves s as it is, waiting costs g of it, and every start d. Below g the guarantee turns
# to on demand for good. Costs are in ticks on demand.


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
