"""What is remembered of spot zones since a job began, and what is expected of them.

Plain functions of numbers and arrays, compiled here and uncompiled in the leaderboard entries, which carry
this very text (`training.studies.spot.entries`). `memory` is (Z + 1, MEMORY): a row per zone, one for all.
"""

from __future__ import annotations

import math

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats

MEMORY = 8
UP = 0  # 1 if the zone has spot now; in the last row, how many zones have
SPELL_S = 1  # seconds since that changed, or since the job began; of all: since any or none had spot
SHORT = 2  # mean availability lately, weights falling by e in 2 h; of all: whether any zone had spot
LONG = 3  # the same over 12 h
FLAPS = 4  # changes per hour lately, over 12 h
SEEN = 5  # ticks with spot since the job began
PRICE = 6  # latest price seen while it had spot, as a share of on demand; of all: sum of SHORT of the zones
TICKS = 7  # ticks seen

SHORT_S = 2 * 3600.0
LONG_S = 12 * 3600.0
PRIOR_TICKS_S = 4 * 3600.0  # SEEN is mixed with one half, as much as this time

FEATURES = 12
SET_FEATURES = 9


@inner
def remember(memory: Floats, up: Floats, price: Floats, tick_s: float) -> None:
    """Take in what the zones are in a new tick.

    Args:
        memory: (Z + 1, MEMORY); all 0 before the first tick.
        up: (Z,) 1 where a zone has spot.
        price: (Z,) spot price as a share of on demand; read only where it has spot.
        tick_s: length of a tick.
    """
    n_zones = memory.shape[0] - 1
    every = memory[n_zones]
    first = every[TICKS] == 0.0
    n_up = 0.0
    short = 0.0
    for z in range(n_zones):
        zone = memory[z]
        _remember_one(zone, up[z], first, tick_s)
        if up[z] > 0.0:
            zone[PRICE] = price[z]
        elif first:
            zone[PRICE] = 0.5
        n_up += up[z]
        short += zone[SHORT]
    _remember_one(every, 1.0 if n_up > 0.0 else 0.0, first, tick_s)
    every[UP] = n_up
    every[PRICE] = short


@inner
def _remember_one(row: Floats, up: float, first: bool, tick_s: float) -> None:
    before = 1.0 if row[UP] > 0.0 else 0.0
    changed = not first and before != up
    row[SPELL_S] = 0.0 if changed or first else row[SPELL_S] + tick_s
    if first:
        row[SHORT] = 0.25 + 0.5 * up
        row[LONG] = 0.25 + 0.5 * up
        row[FLAPS] = 0.0
    kept = math.exp(-tick_s / SHORT_S)
    row[SHORT] = kept * row[SHORT] + (1.0 - kept) * up
    kept = math.exp(-tick_s / LONG_S)
    row[LONG] = kept * row[LONG] + (1.0 - kept) * up
    row[FLAPS] = kept * row[FLAPS] + (1.0 - kept) * (3600.0 / tick_s if changed else 0.0)
    row[UP] = up
    row[SEEN] += up
    row[TICKS] += 1.0


@inner
def zone_features(memory: Floats, z: int, tick_s: float, features: Floats) -> None:
    """(FEATURES,) of zone z, into `features`."""
    n_zones = memory.shape[0] - 1
    zone = memory[z]
    every = memory[n_zones]
    prior = PRIOR_TICKS_S / tick_s
    others = max(1.0, n_zones - 1.0)
    age = math.log(1.0 + zone[SPELL_S] / 600.0)
    features[0] = 1.0
    features[1] = age
    features[2] = age * age
    features[3] = zone[SHORT]
    features[4] = zone[LONG]
    features[5] = math.sqrt(zone[FLAPS])
    features[6] = (zone[SEEN] + 0.5 * prior) / (zone[TICKS] + prior)
    features[7] = 0.0 if n_zones == 1 else (every[UP] - zone[UP]) / others
    features[8] = 0.0 if n_zones == 1 else (every[PRICE] - zone[SHORT]) / others
    features[9] = zone[PRICE]
    features[10] = 1.0 if zone[SPELL_S] + 0.5 * tick_s > (zone[TICKS] - 1.0) * tick_s else 0.0
    features[11] = math.exp(-zone[TICKS] * tick_s / LONG_S)


@inner
def set_features(memory: Floats, tick_s: float, features: Floats) -> None:
    """(SET_FEATURES,) of all zones together, into `features`."""
    n_zones = memory.shape[0] - 1
    every = memory[n_zones]
    prior = PRIOR_TICKS_S / tick_s
    longest = 0.0
    total = 0.0
    price = 0.0
    for z in range(n_zones):
        longest = max(longest, memory[z, LONG])
        total += memory[z, LONG]
        price += memory[z, PRICE]
    features[0] = 1.0
    features[1] = every[SHORT]
    features[2] = every[LONG]
    features[3] = (every[SEEN] + 0.5 * prior) / (every[TICKS] + prior)
    features[4] = longest
    features[5] = total / n_zones
    features[6] = every[UP] / n_zones
    features[7] = 1.0 / n_zones
    features[8] = price / n_zones


@inner
def dot(weights: Floats, features: Floats) -> float:
    """Scalar product."""
    total = 0.0
    for k in range(weights.shape[0]):
        total += weights[k] * features[k]
    return total


@inner
def logistic(x: float) -> float:
    """1 / (1 + exp(-x)), for any x."""
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x))


@inner
def bucket(x: float, edges: Floats) -> int:
    """How many of the rising edges x has reached."""
    k = 0
    while k < edges.shape[0] and x >= edges[k]:
        k += 1
    return k
