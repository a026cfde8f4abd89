"""Spotweave's policy for "cant_be_late" of the UCB-ADRS/ADRS-Leaderboard.

Written by `python -m training.studies.spot entries` from a trained policy: do not edit. It was trained on
other days than those of the leaderboard's traces, and reads nothing but what the simulator shows at each
tick.
"""

from __future__ import annotations

import base64
import json
import math
import os
import zlib

import numpy as np
from numpy.typing import NDArray

try:
    from sky_spot.strategies.strategy import Strategy
    from sky_spot.utils import ClusterType
except ImportError:  # asked for its path only: the simulator imports the file again
    Strategy = object

Floats = NDArray[np.float64]

NONE = 0
SPOT = 1
ON_DEMAND = 2


def settle(ran: int, rem_s: int, left_s: int, tick_s: int) -> tuple[int, int]:
    """(rem_s, left_s) after a tick in which `ran` ran (step 1)."""
    if ran == NONE:
        return rem_s, left_s
    work_s = max(0, tick_s - rem_s)
    return rem_s - (tick_s - work_s), left_s - min(work_s, left_s)


def is_guaranteed(left_s: int, ticks_left: int, tick_s: int, restart_s: int) -> bool:
    """Whether the guarantee decides (step 4): ceil((work + d) / g) >= N - t, with work left."""
    return left_s > 0 and -(-(left_s + restart_s) // tick_s) >= ticks_left


def decide(
    proposal: int,
    ran: int,
    interrupted: bool,
    has_spot: bool,
    rem_s: int,
    left_s: int,
    ticks_left: int,
    tick_s: int,
    restart_s: int,
) -> tuple[int, int]:
    """(what runs, rem_s) in tick t, after a proposal (steps 4 to 6).

    Args:
        proposal: NONE, SPOT or ON_DEMAND.
        ran: what ran in tick t - 1.
        interrupted: whether that was SPOT, and its zone has none now (step 2).
        has_spot: whether the zone has spot in which the job is parked after the proposal.
        rem_s: overhead still to pay, settled.
        left_s: work left, settled.
        ticks_left: N - t.
        tick_s: g.
        restart_s: d.
    """
    request = proposal
    if is_guaranteed(left_s, ticks_left, tick_s, restart_s):
        request = SPOT if ran == SPOT and rem_s == 0 else ON_DEMAND
    if request == SPOT and not has_spot:
        request = NONE
    runs = NONE if interrupted else ran
    if request not in (NONE, runs):
        rem_s = restart_s
    return request, rem_s


def is_spot_safe(
    ran: int, interrupted: bool, rem_s: int, left_s: int, ticks_left: int, tick_s: int, restart_s: int
) -> bool:
    """Whether SPOT in tick t leaves on demand able to end in time, whatever becomes of spot.

    After the tick, with slack s = (N - t - 1) g - work - d: while overhead is left to pay, the guarantee
    turns to on demand, which needs s >= 0. Once it is paid, the guarantee holds on to SPOT when s < g, and a
    preemption then loses a tick: s >= g is needed, unless the work is done.
    """
    running = ran == SPOT and not interrupted
    if is_guaranteed(left_s, ticks_left, tick_s, restart_s) and not (running and rem_s == 0):
        return False  # on demand is forced
    rem_after_s, left_after_s = settle(SPOT, rem_s if running else restart_s, left_s, tick_s)
    if left_after_s == 0:
        return True
    slack_s = (ticks_left - 1) * tick_s - left_after_s - restart_s
    return slack_s >= (tick_s if rem_after_s == 0 else 0)


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


def dot(weights: Floats, features: Floats) -> float:
    """Their scalar product."""
    total = 0.0
    for k in range(weights.shape[0]):
        total += weights[k] * features[k]
    return total


def logistic(x: float) -> float:
    """1 / (1 + exp(-x)), for any x."""
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x))


def bucket(x: float, edges: Floats) -> int:
    """How many of the rising edges x has reached."""
    k = 0
    while k < edges.shape[0] and x >= edges[k]:
        k += 1
    return k


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


MODEL = json.loads(
    """
{"beliefs": [[-0.6501917675092203, -0.7535890718437724, 0.05021286686005867, -0.5767610773550759,
-0.17653433777741495, 0.6175236509008293, -0.8918761706128007, 0.0, 0.0, -2.06765256215717e-07,
-0.6892327977432873, 0.14537011988159396], [-1.8715691100498097, -0.8168886190105684,
0.07472619565647862, -0.015869884090270535, 0.2233529572451556, 0.4178230084129595,
0.966853633123752, 0.0, 0.0, -0.0673681069023418, -0.37016445662930747, 0.11493737146193723],
[0.07281647972185958, 0.02854769277265249, 0.05815093438029842, 0.5133049153530437,
0.05815093438055544, 0.05815093438043758, 0.19317130395089355, 0.0728164797332103,
-0.19837683137115097], [0.005254323501965259, 0.010033800359617281, 0.014956853708169737,
0.022517452067493785, 0.03414809677215222, 0.057806969917707896, 0.12031860381239154],
[0.025365535251319682, 0.03654314599727726, 0.04739478568868899, 0.06105764579428019,
0.0803057174467604, 0.11409442390343216, 0.18802087999243927], [0.2925316653302645,
0.507044177160002, 0.7004798621684336, 0.8460141115185493, 0.9303521436739559]], "risk": 5.0,
"crowd": 1, "tick_s": 600, "restarts_s": [72, 180, 360], "work_step_s": 3600, "shape": [3, 3, 49,
133, 96]}
"""
)
TABLE = """
eNrs3e1u2zgQBdAx3/+hF5s08Jds0xRHpKRzf6hFWxyzE4nObn3BUnJz+TIl/k8pv9fyfC3319n8+DJ8Pp/P5/P5fD6fz+fz+Xw+
n89v4vl8Pp/P5/P36wd/vB98Pp/P5/P5fD6fz+d/9oPP39Yv+h36HXw+n8/n8/l8Pp/P5/P5fD6fP94PPp/P5/P5/NP4+hcT+MHn
8/l8Pp/P5/P5fP5nP/j8bX39Dv0OPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5Xf3g8/l8Pp/P5/P5fD5/vB95vn5Qiq/foT/C
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/frR98Pp/PP4av36Hfwefz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fD5/rK/fcaR+R3m6uv/5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pn9/X79ixH5+v
7n8+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz5/f1Ow7mP1zd/3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fD6fz+fP7+t38D1ffD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P54/19Tv4z/fPPz8+
Xz1ffD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P56/39Tv4n/xYvnq++Hw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+/k63fwv/Hj4er54vP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pn+9r9/B
/8qP+65H2/1ZKq6eXz6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P55/H1+/gN/vN9+c//6fJ8b7l4fnl8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+GXz9Dv5oP5avnl8+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+efxtfv4I/2I3L6Hc+ngdgf+Hw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fP6ev38Gfyo/7
lkfb/X/bEHnf8rA/8Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+fwZfv4M/lR/3LY+2+/+v33HTFonHq/2B
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P58/j6Hfyp/FjX71jy4/Ea1+v65+vVySD2Hz6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P59dHv4M/rR9J/Y6blkfb81VeXO0/fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/Pb/P1O/jT+jFtv+OfUOJTy8P+w+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5/Jrod/CP
7j///Hpte77e9ztKwvPrfBA+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fzz+2r9/BP5Uf6/odH84Hiet1zfP7
vjNif+Pz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5/OP5+h38U/lx38vo4UcstTzWPL/6HXw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6ffzZfv4N/Kj826HfctDzant8/ocSnlof9jc/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fzj+Hrd/BP5cfc/Y47P7nf4XwQPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8+fx9fv
4J/Wj8n7Hc9+p/2hvLjaP/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+f5Sv38E/rR89+xfLXYx+/tUsq/eH
P6eEfgefz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P58/h63fwT+tHgh/3jYwefsTrUzxW+U/9jpKw/+iP8Pl8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xx+TfQ7+PyOfuh3LJn6HXw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6f/z76HXx+Rz/uexk9/Fi8tu0PC/2Om86Ifgefz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P
54/y9Tv4/I5+bNXvKJHgr95/7jsdj+eD2J/5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pv9V9Dv4/I5+ZPU7
lrsY/fyrWVbsPwvng8SyvGZ/cz4In8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fzz+er9/B5+f4Lc/vp37Hza9E
Xz9i6RSPVb5+B5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/nV0e/g89P8iPrfJCf323aHwb0O16cDLJmf9Pv
4PP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/nH8/U7+PwkP1L7HZ3PB7m5rth/Pvir97f354PY//l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+fv2J+h0/f1a/gK/f8anfce1N9PBj8dq2/xyj3+F8ED6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp+/va/fwefvyI+sfsdjF6Nt/xnb7yid9k/9Dj6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp+/va/fwefvyI9d9zueWh6r/CgPZrf+yIur9xc+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
n+frd/D5O/Ijt9/x2Jjo50d073eUtH7Hi/NBeu3P+iN8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+/zn6HXz+
Pv2W/aGuP/Lzu9HLj9ig3/Ekd/D1O/h8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+hr5+B5+/T79lf9Dv+MJ/
6nd0819cvX/x+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5Z/b1O/j8nfqxp37HYxcjOvvXNa/ZP7ftd2SdD+L9
kc/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz9+jr9/B5+/Uj6x+x7U30cN//nn7/lZzPsia/XOh33HTHMnuj/Ta
/50Pwufz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5+/R1+/g83fqx/76HddfadvfavodJdL81ftzdr/jVbNDv4PP
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8+f39fv4PP5+h1V/ur9Wb+Dz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P57+Kfgefz8/sdyzLJXr5EUfpd3TzY9nv9f5S0xzx/svn8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+d/6+t38Pn8pVdp2X+m6HfknQ+yen9e6HfcyM4H8f7O5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n88/s6/f
wefzl/yW/Wdcv+OxixGd/Uc5xY+uvn4Hn8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fvyt/on7HT/h8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88/mZ8f8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fzx8b8+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzxyZ7+b6+fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P37mcne/m+vnw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz9+5n
J3v1vr58Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/fuZyd79b6+fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P37mcne/G+vnw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz9+5nJ3vx
vr58Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/fuZyd78b6+fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P37mcne+m+vnw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz9+5np37hm/Q7
ivuHz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fP5sfnbqF67fwefz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD7/nH526heu38Hn8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+/5x+durXvUW/
I9t3f/L5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P1+/oPR33D5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/n8bD879evW7+Dz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6ff04/O/Xr1u/g
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n39OPzv1y9bv4PP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp9/Tj879cveoN+R7bs/+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+df9Dt6D8f9
w+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD4/289O/bLT+x1Fv4PP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8/ox+duqXrd/B5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pv+cfnbql53f
70j23Z98Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n85v87NQvW7+Dz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fP45/ezUL1u/g8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+Of3s1C9b
v4PP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/jn97NQvW7+Dz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fP45/ezUL1u/g8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+Of3s1K9av4PP
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/jn97NQv+hD9juL+5PP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp9fJkv9ovU73J98Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/nn9PPTv2i9Tvc
n3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+ef089O/aL1O9yffD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P55/Tz079opP7F0W/g8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+nH526hd9
hH5Htu/+5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pv+IfnbqF63f4f7k8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+/5x+duoXrd/h/uTz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD7/nH52
6he9+35H0e/g8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n9/iZ6d+0bn9i6Lfwefz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD5/Uj879YvW73B/8vl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n39OPzv1i9bvcH/y+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6ff04/O/WL1u9wf/L5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp9/Tj879YvW73B/8vl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n39OPzufF3w5Tr8j13f/8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n39QPzufF3zR73B/8vl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n39qPzufF3w5TL8j2Xf/8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n39QPzufF3zZot9R9Dv4fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P58/qZ+fr9cf/KeX3
Wp6v5f46mx9fhs/n8/l8Pp/P5/MH+cHn8/l8/q78OIIffD6fz+fz+Xz+1Q8+n8/nn80PPp/P5/P5fD6fz/8Q/Q79Dj6fz+fz+Xw+
n39KP/h8Pp/P35Wv38Hn8/l8Pp/PP5offD6fzz+b7/NvfD6fz+fz+Xw+/1P0O/RH+Hw+n8/n8/l8Pp/P5/P5p/GDz+fz+Xw+n88/
jh/79fVf+Hw+n8/n8/l8Pn87P/h8Pn8/vn6Hfgefz+fz+Xw+n8/n8/l8Pp/P5/P5fP4KP/h8Pp/P5/P5fD6ffwQ/+Pxz+voRfD6f
z5/I1+84mH/zKv59is/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n8Ljyfz+fz+Xw+n8/n8/n8w/kxna/fwX++g0rF1f8/5PP5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+fwN/eDz+Xw+n8/nH9vX7+DX+fF49d9ffD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pr8nz+ef2tfv4Df74XwQPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n83v4+h380X5E/vkg
xf7A5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n8iX39Dv5Uftz3Ptru/7+GyI/z+ys3V/sDn8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzZ/P1O/jT+pF0Psjq56u8uNp/+Hw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6f3+brd/CP7j///Oe64vlyPgifz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P7+vod/FP5
cd/16OHf/Epcr2ueX+eD8Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+2Xz9Dv6p/JtXaXm+PvQ7dng+iP4I
n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fP4Ot38E/rR1Z/5Od3m57fbc8HKaHfwefz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5c/j6HXx+Rz/uexk9/Iillsea/WGb80Hey/ZnPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8+/jX4Hn9/Rj6x+x/JZHv38q7l+/3E+CJ/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
f+vrd/D5OX7L81vXH/n53ejlR/Q7H+TOTzsfpLy42v/5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/n59/Q4+
P8mP1H5H5/NBHq9t+4/zQfh8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+v83X7+Dzd+THfW+ih//88/b9J7vf
4XwQPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n39UX7+Dz9+RH/37HS/OB4lefsTrlkdnv9P++ao/4v2Fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5+f5+h18/j79lv1hXL/jCOeD9NqfnQ/C5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n85+j38Hn79SPfZwPEoty2/5Wcz7Imv3zpR/X6/r9+U9zPgifz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/Pv0a/g8/fqR/76Hdscz5IxNIpHp391fvztueD6I/w+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5e/L1O/h8/tKrtOw/4/odj12M6Oxf17xmf17od+z8fJDi/ZfP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/v5Ot38Pn8Jb9l/xlxPkgsym37Z835IGv2Z+eDeP/l8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzX0W/g8/n
L/qxj37Hsty2f9b0O0qk+av3//fng0QvP2786OkvvEN5f+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P55/Gn6jf
8fNnfT6fz9fvWOf//G708p9/3r4/Ox+k5v3L+SB8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+fxz+ifqd+iP8Pmj
/ZtXadnfvuiPRC//+bXa92f9jio/svx40pwPwufz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pn8fX7/D5fD5/hN+y
v81zPkjb/lzT7yiR5q9+f3E+iO8f+Hw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5eb5+h8/n8/lD/NDveN2V6O0/
yil+dPUPcT6I70/4fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n10e/w+Xw+X7/jG//nd6OXH7Ht+SBr3l8G9Dte
yN386OnHjfZ89f0Jn8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD7/ffQ7fD6fzz9Yv6Pk9juuvYAe/vNrte//VeeD
RIb/KO/Adz6I76/4fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8yfz9Tt8Pp/PP6Lfsn/Ocz5I2/5f1e9wPojzQXz/
w+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp8/pa/f4fPzfL7zQSr92He/I8+P2F2/40XnpZvvfBDfv/H5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/nfxn9Dp+f5/P1Oyr92Ox8kOjlP79W+/tL1fkgkeFHOB9k6/5IhPNB+Hw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/O39fU7fH6ez9fvqPRjf/2OLc8HiXA+yHH6Hc4H4fP5fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/f2tfv8Pl5Pp//vd+yP3/R70j0299fxp0PErG7fsc2/ZFYllf5sY0f4XwQPp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+fz76Hf4fDufz//eb9mf5+h3lOb3l3H9jke5tx/hfBDng/j+kM/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fP5oX79Df4TP5zf4kda/2KI/Enl++/tXTb+jRIYfsf/zQaKv73wQ33/y+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P39zX79Dv4PP5DX7od2zd78jzI/bf73A+iPNB+Hw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5+/d1+/Q
7+Dz+Q1+5PoRqf2ORL/9/Wtcv+NR7u1HOB/kuOeD+P6Tz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8fi9fv0O/g8/n
z+e37P9z9DtK8/vXFP2RyPAj9DucD/KN7/tbPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzz+nrd+h38Pn8Cf1I619s
0R+JPL/9/XHc+SAR++93dPb1Oz7472Tf3/L5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n39UX79Dv4PP50/oh37Hcfod
j3JvP8L5IJv1O5wP4vtnPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz03z9Dv0OPp8/oR+5fsRe+x2l+f1xhv7Imvd3
54N84Tsf5IP/Tvb9M5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+aN8/Q79Dj6ffz6/5f1lnvNB2t4fnQ/S6v9cY99+
9PV3fz5IhPNB+Hw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P1+94E/2Omhfh8/n8Dn7L+4t+x/d+xGH6HTvvj0Rf3/kg
H/x3su/P+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pf5WZ+h3//+HM/kW2f7n4/Dmfz9+JH3vud5TI9SPRj65+LK68
tx/hfBD9ju/8COeD8Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fv+t+x0/4fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/PP5mfH/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n88fG/Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n88cme/W+vnw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz9+5nJ3vx2eNx//D5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/Pz/azk7347Om4f/h8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/nZ/vZqV/4JddvnI77
h8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xx+tp+d+oVv0O/I9t2ffD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/Mv++13FP0OPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/kn9bNTv+70
fke23/Qa7k8+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+dmpX7Z+h/uTz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5/HP62alfdnL/omzR78j23f98Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/nH9HPTv2y9Tvcn3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+ef089O/bL1O9yffD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P55/Tz079snP7F2WLfke27/7n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+/5B+duqXrd/h/uTz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD7/nH526le9+35H0e/g8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n9/iZ6d+1an9i7JFvyPZb3oN9z+fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P58/vZqV+0fkfGa7j/+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz5/f
z079ovU7Ml7C/c/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+/H526het35HxEu5/Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8+f3s1O/aP2OjJdw//P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp8/v5+dzwu+6HckvoT7n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+fz5/ex8XvBFv6PS1+/g8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+/5h+dj4v+KLfUelfcn3PF5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/mD/Ox8XvBlg35Htn9pbF9M1+8oni8+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fzt/ez83nBF/2OxC9t9u3j+eLz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD5/vZ+dzwu+5Pc7sv3fv0eu
r9/B5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/mH97Hxe8OUQ/Y5yiH5Htu/55fP5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pn9EPi/4ot+R+KXNvns8X3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+ev97PzZqXXH37/ZGf/cSj6HZ98/Q4+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzx/jZebPS6w+/
f7Kz/zgU/Y5Pvn4Hn8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+WP87LxZ6fWH3z/Z2X8cin7HJ1+/g8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+fwxfnberfR3uZcj9DuKfofni8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fD6fz+fz+fxWPzuLa/y30ot+x9n6HcXzy+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fP72WVzjv5Ve9Dv0Ozy/fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P56dncY1/K9XvmKvfkes3/R08v3w+
n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fzz+Dn53FNf6tdIt+xxb9kYP0O5L9ptfw/PL5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pv8MfnYW1/i3Uv2OM/U7SstLeH75fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp9/Bj87i2v8W6l+h36H55fP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n89Cyu8W+ht1f9jpQv
7Uy+fgefz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5Y7K4xr+FHqXfUTbodxT9Ds8vn8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzj+pnZ3GNfws9TL8j2f/9e+T6+h18Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/nD/Ozs7jGv4Xqd+h39L3/i/2Bz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5e/Szs7jG
v4Xqd+h39L3/i/2Bz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5e/Szs7zGywb9jnL9IcV/HHpuP6Lod6T8
HewPfD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pn8HPzvIaL/odX3599Tty/g72Bz6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P58/gZ2d5jZfbTkRmv6Pod+TeOt/4yf2OctHv4PP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8/k797Cyv8aLf8eXX9wj9jmz/ot/B5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n8
nfrZ+Xb98Zvycylx/eHvWu6vX88n3mD/X8v9Nc///Us2zqc6fD6fz+fzV/vB5/P5/Mn8aOL5fD6fz+ef3Q8+n88/nh98Pp/P5/P5
fD6fz+fzz+4Hf7wffD6f39HX79Dv4PP5fD6f35Xn8/l8frbv86t8Pp/P5/Nb/ODz+fzj+T7fwufz+Xw+n8/n8/l8/un94I/3g8/n
8zv6s/U75ulfzOmn/fsCn8/n8/l8Pp9/PD/4fD6fz+cfzQ/+KF9/hM/n8/l8Pp//6Aefz+fz+fvyfT6cz+fz+Xw+n78HX7/jYP71
2vLv73/+2+uKf9/3+UM+n8/n8/l8Pp/P52fwfD6fz+fz+Xz+Cj/4fH6Grx/B5/P5fD6fz+frZ/H5fD6fz/86+h38r/zrq7T8+4vP
L/H5fD6fz+fz+Xw+n8/n89f4wefz+Xw+n8/n8/n78IPP5/P5s/n6BXw+n8/n8/n8Hfj6HfxhfpSbnz9e13x+oObkEZ+v4PP5fD6f
z+fz+Xw+n8/n8/n8A/nB5/P5fD6fz+fz+Xw+f60ffD6fz+fzt/T1I/gL0e/gT+Vfr03/PrjkR7xueaz/90f9ET6fz+fz+Xw+n8/n
8/l8Pp/P5/P5/BP7wefz+Xw+n8/n8/l8Pp+/bz/4fP5Evn4Hf1o/svoj7f//f+H8kd9fubn2/fcF/RE+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/nr+b5fD6fz+fz+Xw+n8/n78DX7+Cfyr95lZb///byfJDb64r/v6c/wufz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n88/sR98Pp/P5/P5fP6Zff0O/mn9yDwfpDT99++H/sjq/75+3x/J+O/34v8/8Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD5/dj/4fD6fz5/B1+/g8zv6cd/L6OHHotz2/W12fyRu/U36I/77gs/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
v1s/+Pzb6Hfw+Tl+y/4/+HyQp5ZHZ7/T++NfZ0R/hM/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+cfx9fv4POT
/HA+yFJ/ZM3+dufHY9tFf4TP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+fz/2ruj5bZxJICiDf7/R2/VOp4oMi1CFBog
wNMPk5epQxiUKSmVW+Dz+Xz+vL6+g8+f0z/zfHijH4lW/s9rnX++ZZ8P8rofafV81o/w+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5/J+j7+DzJ/VjjvNB9uVzz7ejfuTT5+eAfiT25U+e//oRPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+f0Zf38HnT+pHWt/hfJDY7Tv0Iw+afoTP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n89v6+s7+Hz+nn/m
+XOH80G2yPCf5Qw/2vr6ET6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pr+pr+/g8/nrnQ9y7vnpfJA3/NheyM38
aOnHg6Yf4fP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/nX83XdzTzt8nXz+fn9x39zgeJPP/881k/8oaf0I/8edeL
Bz/y/Feyzyd8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+fyfo+/Qd/D5i50PEs4H2fc/fX/p2nf88KOt73wQPp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+xXx9h76Dz1+s73A+SDgf5H0/2vr6ET6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8/puj79B38PnL9B1bt77D+SD9zweZqx+J7YXczI+Wfjxo+hE+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5/P6+vkPfwefrRyr9cD6I80HO+tHW14/4fMjn8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD5/Of9Gfcc2
uV/4fP4bfkx9Pkjk+pHoR1M/wvkgdX609RP6i0ctvx95Jft8yOfz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pv+avr5D
38Hn6zve9yNmPh/k3PvLuueDdOlHYip/wvNBevYjPn/y+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pz/D1HfoOPp9/
wo+Z+w7ng/zWj3zy/ut8kDd8/YjPt3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/N/jL5D38Hn80/4Me35IOF8kCXP
B9GPPPoT9h36ET6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n6Dn0Hn88/4ce0fYfzQcL5ICf8yPWjre98kF8+H/70
fX7m8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD7/Or6+o52/Ff9+ns/nN/Jj6vNBItePRD+a+hHOB6n0I9ePtr5+5JfP
n69Nn8/5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n89/PfoOfQefz7+gH84HWaHvWON8kC79SMztR1tfP/LL59vN538+
n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5y/t6zv0HXw+/4J+6DucD3LsRzgfpNKPXD/a+vqO7r7vF3w+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pv4Kv72jYd2z+fTufz5/ED/2I80GO/YhlzgfRjzz6+pED/5Xs+wWfz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/P8C/Ud6f1Ftq/v4PP50/ih73A+yLEf4XyQSj9y/ZjL148c+L6/8Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD5/f/Qd0/Qd2esvfD7/Rn5M2Hds+o6V+w7ng7z0I9ePtr6+Y6jv+xGfz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/nz+vrO/Qd/1yEz+fzW/jhfJAxfYd+5JX/yecrfceFfP1Ite/7EZ/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fP
5es79B3/XITP5/Nb+KHvcD7IsR/hfJBjP0I/oh+p9KOP/0r2/YvP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzP/H1HfqO
Tn7h8/k38mPCvsP5ILF6PxLOBxnUd0zWj8zbdyzUj/h+x+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8+/p6zv0HZ38wufz
+c380HfoO479COeDHPsRzgfRj1T60duPBN/3Rz6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n39lX9+h7+jkFz6fz2/mh77j
hR+J/unPJ84HaeBHnh9pfoR+RD9S6Ucf/5X8ie/7KZ/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz//c13e07Ds2fcfRRfh8
Pr+FHxP2Hc4HCeeDfOZ/8vlQ3/GJH3P58/YdC/Ujbb/f6Uf4fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+fz7+HfqO7ai7xjo
Fz6fz2/mh35E33FFP5r6z9dyPoh+5BK+80GG+r7/8vl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5a/v6Dn1HJ7/w+Xz+NH44
H+TFVSLRP/35x/kgn/uffP7Ud3ziB//R149U+5Hg+37N5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+eP9fUd+o5OfuHz+fxp
/NB3OB/kin409Z+v5XwQ/cgl/Hn7jkX6kfbfTzff3/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5/OrRd+g7OvmFz+fzp/FD
PzKo73A+SDgf5IwfaX6EvkM/csKPBD/W8Nt//9WP8Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/NX8vUd+o5OfuHz+Xy+80F+
9UPf0bvvcD5IvR9pfoR+ZGDfoR959KO3Hwl+xvdr/Qifz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+v6ev79B3dPILn8/n8/Ud
v/rRxT/9+Uo/8r7/fK2Z+47J+5HI9YP/6M/bdyzSj7ySP/czvr/rR/h8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5j6Pv0Hd0
8gufz+fz+/Qd+hHng5zzYyr/+VrOB3E+yC1854MM9tt/f9d38Pl8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/MfR9+h7+jkFz6f
z+c7H2SYH/oO54N86Me8fqT5EfqRJfsO/UiFHwl+xt8P6Ef4fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz5/L1HfqORfzC5/P5
fH3Hr3708s99ftN3XM9/vpbzQfQdt/Dn7TsW6UdeyZ/7GX//oB/h8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pb+tfqO/4//D5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P59/Nzx77z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fP3bsP5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/tix/3w+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+WPH/vP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P548d
+8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+nz927D+fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fP7Ysf98Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/ljx/7z+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+ePHfvP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp8/
duw/n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+2LH/fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5Y8f+8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/njx37z+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fP3bsP5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
/tix/3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+WPH/vP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P548d+8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+nz927D+fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fP7Ysf98Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/ljx/7z+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+ePHfvP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp8/duw/n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+2LH/fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5Y8f+8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/njx37z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fP3bsP5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8/tix/3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+WPH/vP5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P548d+8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+nz927D+fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fP7Ysf98Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/ljx/7z+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+ePHfvP5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp8/duw/n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xz+2LH/fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5Y8f+8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/njx37z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fP3bsP5/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/tix/3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+WPH/vP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P548d+8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+nz927D+fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fP7Ysf98Pp/P
5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/ljx/7z+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P
5/P5fD6fz+ePHfvP5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp8/duw/n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xz+2LH/fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5Y8f+8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/njx37z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fP3bsP5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/tjJXn329nj98Pl8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/P9rPnnaWXXL+k+/oRPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+Xw+n8/n8/ll4r5jK7l+SfdLh/NHvP75fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/PX9DPnvp1J/cXm76D
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fP41/eypX3eZ2j+7+V6ffD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/Ozp37Z0/cd2f6pa3j98/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n399
P3vql11m9k9vffbd9frn8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+//p+9tQve/K+Y1ui79j8fvH5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/f38+e+mXrOzJubvbLx+8Xn8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Z/72VO/6rn7ji2/79jy+45s3+8vn8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz
+SOmftX6joxbm/3q8fvF5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8/ud+9tQvOrNfyPb1HVkX8PvL5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n8O/jZU7/oqfuObYG+49RPkP3y9PvL5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/n8O/jZc7zgkt93ZPv6jrQfwe8vn8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz7+Bnz/GCi74j8dZeyC/6Dj6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/PHzPGCi74j8dZeye/Qd2ye
D3w+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz5/Rz57jBZfc/qJHP9Kj79j0HRk/g+cDn8/n8/l8Pp/P5/P5
fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzr+Bnz/GCi76j6gL6joyfwfOBz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5V/Cz53jBZYG+I9tfpO/I9UuHfsTzh8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Sl+9hwv
uOg7qq4wf9+R7TsfhM/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+bP62fNqpV9/lPn7jmy/6DtqfH0Hn8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fzZ/Wz5+VKy5/K4+v/bOx/X6as0Hds+o6aO53qn/oZPH/4fD6fz+fz
+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp9/hXm50r+Rx6bvOLqCvuP4Tqf6pUM/4vnG5/P5fD6fz+fz+Xw+n8/n8/l8
Pp/P5/P5fD6fz+fz+Xw+n8/n8/k39bNnd43fK03tO7a/f6T4z5s+ed+xQD9Ssn3ng/D5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pj/Jz57dNX6v9Gu5WX3H9t/FUvznTdd3ZLw0r+TrO/h8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n5/lZ8/uGr9X2qHv2PQdlRfQdxz5+g4+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+dn+dmzu8bv
lSb1Hf/6Rd9RdQF9x5Gf3HdsRd/B5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/m39bNnd43/LXSBvqNHP6Lv
uISf33ek+qf2yPOTz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P7+Nmzv8ai73jn/mb7Rd9R4+s7PD/5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pj/Lz579NRZ9xzv3N9vvcD5IWaHvyPb1HXw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6ff1s/e/bXWDr2HZu+o+oK+o7Rfv75IPoOPp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8+/qp89+2ss+X3HX1nfUXWF5H5BP1LxSsr29R18Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n39V
P3v211j0He/c32xf33EJP7/vSPVP7ZHnM5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n95n9NRZ9xzv3N9vX
d1zC13d4PvP5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/n8+/rZs7/Gktt3JPt/rvL3jxT/+abO3Xds+o5Df/K+
Yyv6Dj6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/PP+1nz/4ayz/Ngr6j5qbqOzJe+lfyS7av7+Dz+Xw+n8/n
8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5/Mv62bO/xqLveOf+pvv6jjv4C/Qdm+c/n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp/P5/P5fD6fz1/Vz579NZZV+o5tW6LvSPaLvuMKfn7fkeqf2iPPfz6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+
n8/n8/l8Pp8/i589+2ss+o537u/sftF3XMGfvO/ocT6I9xc+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fP8zP
nv01lqn7ju3vfzd9R+0V9BejfX2H5z+fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/Pv66fPftrLPqOd+7v7H6P
vkM/crxD+o7m98D7C5/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n89v5WfP/hrLCn3Hn6sUfUfVFfQdo/2S7es7
vL/w+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5/NN+9jwv72uNRd/xzv2d3dd33MKf/HyQU3vk/YXP5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/nt/Kz53l5X2ssPfuOTd8x2Nd33MKfvO/ocT6I9y8+n8/n8/l8Pp/P5/P5fD6f
z+fz+Xw+n8/n8/l8Pp/P5/P5fD6fP2yel/e1xqLvqL2/S/Qj+X3Hpu8Y7us7vL/w+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n
8/l8Pp/P5/P5/PN+9jwv72uNRd9Re3/1HZU/gv5itK/vaH8PvH/x+Xw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5
9/Gz53l5X2ssS/Qdm75D38F/eKXO7us7+Hw+n8/n8/l8Pp/P5/P5fD6fz+fz+Xw+n8/n8/l8Pp/P5/P5fP44/38ipSzV
"""


class SpotweaveOneZone(Strategy):
    """Hazards of the zones, and the value of slack that follows from them."""

    NAME = "spotweave_single"

    def __init__(self, args=None):
        """Read the model."""
        super().__init__(args)
        self._beliefs = [np.array(row) for row in MODEL["beliefs"]]
        packed = zlib.decompress(base64.b64decode(TABLE))
        self._table = np.frombuffer(packed, np.uint8).reshape(MODEL["shape"])
        self._memory = None

    def _step(self, last_cluster_type, has_spot):
        """The choice of this tick."""
        env, tick_s = self.env, MODEL["tick_s"]
        up, usd_hour = [bool(has_spot)], [0.9731]
        if self._memory is None or env.elapsed_seconds == 0:
            self._memory = np.zeros((len(up) + 1, MEMORY))
        share = [float(np.float32(usd) / np.float32(3.06)) for usd in usd_hour]
        remember(self._memory, np.array(up, float), np.array(share), float(tick_s))
        left_s = round(self.task_duration - sum(self.task_done_time))
        if left_s <= 0:
            return ClusterType.NONE
        going, coming, quality, *edges = self._beliefs
        scratch = np.zeros(FEATURES)
        zone, chance = best_zone(self._memory, going, MODEL["risk"], float(tick_s), scratch)
        state = state_of(
            self._memory, chance, coming, quality, *edges, MODEL["crowd"], float(tick_s), scratch
        )
        runs = NONE
        if last_cluster_type == ClusterType.ON_DEMAND:
            runs = ON_DEMAND
        elif last_cluster_type == ClusterType.SPOT and has_spot:
            runs = SPOT
        restart_s = round(self.restart_overhead)
        nearest = min(range(len(self._table)), key=lambda k: abs(MODEL["restarts_s"][k] - restart_s))
        choice = proposal_of(
            self._table[nearest],
            state,
            zone,
            runs,
            0 if runs == NONE else round(self.remaining_restart_overhead),
            left_s,
            round(self.deadline - env.elapsed_seconds) // tick_s,
            tick_s,
            restart_s,
            MODEL["work_step_s"],
        )
        return (ClusterType.NONE, ClusterType.SPOT, ClusterType.ON_DEMAND)[choice]

    @classmethod
    def _from_args(cls, parser):
        """As the simulator makes a strategy."""
        args, _ = parser.parse_known_args()
        return cls(args)


class Solution:
    """What the evaluator asks for the strategy."""

    def solve(self, spec_path=None):
        """The path of this file."""
        return {"program_path": os.path.abspath(__file__)}
