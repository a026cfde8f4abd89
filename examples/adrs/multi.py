"""Spotweave's policy for "cant_be_late_multi" of the UCB-ADRS/ADRS-Leaderboard.

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
    from sky_spot.strategies.multi_strategy import MultiRegionStrategy
    from sky_spot.utils import ClusterType
except ImportError:  # asked for its path only: the simulator imports the file again
    MultiRegionStrategy = object

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
{"beliefs": [[-3.8934099986585173, 0.11423805876967409, -0.11790149993926877, -0.9999483648835494,
0.03382676419952509, 0.575465021545175, -0.4741834614909, -1.2550137113664763, 1.0032564239235031,
3.941773904260873, -0.495695639873722, 0.064005394752612], [-2.6466599839312455,
-0.43789346803531903, -0.025239260580886214, -0.7432935190600523, -0.33910783652924,
0.35218624063900666, 1.1815238894400522, 1.3754563758952048, -1.3886582217010404,
-0.6842681589998989, -0.4958364345673796, -0.1923908621444086], [0.6802741565780643,
0.13280361222416803, -0.051579553275044716, 0.24164860998148777, 0.259502835279478,
-0.03650761360925341, 0.08464844876494951, -0.272155497622298, -0.5643834297812353],
[0.00046354471123202367, 0.0007717678199090153, 0.0012669196987398772, 0.0022435616416606034,
0.004457690796633659, 0.008809785738842574, 0.021235809809530503], [0.015345955825774388,
0.02216195449797209, 0.02751688755768608, 0.03351145255155946, 0.04055674699704391,
0.04919852891971907, 0.06313607927749108], [0.6984072516890703, 0.8564307317564853,
0.9310040350888574, 0.9774104418075777, 1.0157876756252786]], "risk": 5.0, "crowd": 3, "tick_s":
195, "restarts_s": [720], "work_step_s": 3510, "shape": [1, 3, 50, 74, 192]}
"""
)
TABLE = """
eNrt3Y12m7q2gFGW3v+h77m7iQMG24ABaYmpsUeTOmk6ocI/mG+rlNxjGP7338pRPt723w/8u/Xxm///b/SV/31efn/9/Fcs/sQV
f+RA/9NNO/xDp/5obKyZRqV5//ox/qOPXya3xPttHBY/nfy093tpiPE3feHfucNe+GOlf6jsP2oHDEvzp2T1l5f+ct78OX7/Xzv/
+fn5+fn5128cfyf+gb9T/5DDP/Dz8/Pz8/Pz83/+yQM//3v/wL/PP/Dfxz/wf+sf+Pn5+fn5+fn5+fnP9A/8/Pz8/Pz8/O35h5b9
RX+nv9PfNTP0d1/cf8byT9Pf6e8u9uvv+Pn5+fn5d/v1a/o7/vR+18/z8/Pz8/Pz8/fj16/xf/Dr7/Rr/J/8+ruv/a7f5ufn5+fn
5+fn5z/V7/p/fn5+fn5+/gb9+rtT+7vHhuxJwkbfOv3z5am7+5ihTX9b3tYXS1892D985x8++4cu/NHY+NDvZPHv6afO6u+Gla9/
hy/v/3fusGbe/6o1YZbeP72uXzvqH/DnQxndGf57eHr6tYx/LfqL2/uD3/zh5+fn5+fvyK8/beH1Iz8/Pz//Tf0DPz8/v/6UvzO/
fpafn5+fn5+fn5+fn5+f/1r/wM/P35t/4Ofn/+C/eX/3F2Z8WIOu/C6ftvgdZbED+8vBFmOQsnWnL/2hbP5hs384yz/s90djYxIz
fvj3Kvq7W/R3caP+7n2/9vjQ0PFbNvj1d/wfNoPf/MnkjzP9Jbnf/OHn5+fnr/H6Mbtfv8PPz8/Pz8/Pz8/Pz69f5v8B8/Pz8/Pz
8/Pz8/Nf79ff8fPz8/Pz89+rv5ulZGUhdvt4PW9Z3EHjJmrcwX1ZgpXyLoVL4B+u8S/srcP80diYbmt5u20p+7vSYn83dNrf5esX
tvRr/7991fnlp78r2/1N9HdD8uufh/77o8mvZfpY2M4d/8v5P4z62Sd/6/3pBetvDifef/axfuj02V8H65/m6UfyzX/9Dj8/P38+
/8Dv+mF+fn5+fn5+fn5+fn5+/hb9Az8/Pz+/foefn5+fn5+fn5+fn7/n/q48B2DlVXdSXpRi09/+XjM+a/sWVq2bfEvZFpY9O7b6
h/X+gb802188H86z2GIo81iz/P7SqD9Nfzfo72rPmMmHTf1aA/1dabq/y3X+ducdTl1/zflfSob+LtX6j+XTU5Wn/+lAm/6u+ruF
fq10cfy222+m70+ve/5z9fHLX3f+66f4+fVr/PyuX+Xn5+fn5+fn5+fn57+PX7/Dz8/Pz8/Pz8/Pz8/P7/+fwM/P33V/92qRsPLi
Gupxsve8glr5/Xp5tZDbXwe2tFTbxytWx+KFuo9/vX84xB+NjcmOeb7Y/Pf68/J3fXeb/rXXb5c1/d2++88N/d1/33CX/q6D/qKd
/qik7++G5P3dsr8Mb/f/6JHC/D92M2rO/2HfBHrpT9/fLTxZ6+j+f2hi/dPa67dm7zf5Vx2/pRd/un6wJO8f+fm3+uv0p8f3U9n9
+jV+ftcP8/Pz8/Pz8/Pz83fid/0kPz8/Pz8/Pz8/Pz8/Pz8/P3/H/g76u61bvPD5x/USyuYffdrgP9IfjY2F/u7tZrXp39V/6e8+
vLfy/v5ff3f9+M/w82kl/1f93WgKpOzvhll/V9b0dw2tn6i/O/P+c9UD1uTjtn4nRX83TvaHvtaPc/zq17rv1xaOX/6r54/5z3+I
Xz9Y9/Gr8f6oE/+Q1d9Xv6k/vbff9ef8/Pz8/Pz8/N35XX/Fz8/Pz8/Pz8/Pz8/Pz8/Pz8/frL+X/m5UcJXZRdJ/n5XZzU9rsZXl
7yhLP2zlJQ6rqrDv/cNZ/q11XSp/NDame6E8/VpG18831l/E0v2P9e8Ouf/f0N99vP5Nf3fgSNLfDW+P1sn8ydXfle/6uxbuP4v+
7rz7z1UPWEv3nyv7i2z9XXmsnHuY/9b3/w34r+4vEq7/2E+/9nz85nz+dmj/q/9a5y95+1N+8/8wf6b+Lrv/4n6TX7/Zkl+/edD5
z91+1//z8/Pz8/PzL/15fn5+fn5+fn5+fn5+fn5+fn5+fv5z/P2sf1cWK6/p52V2y7wdG/+EFXFXmf3pnRneGv9Q0T807h+6W//u
aeWI2U36u9jX343+pv77u5PX7zhqByTu78q/T+v4D+jvhtH8SdbfzfrBdP3Ob7+pvzvh/nPVA9an+TOU0VOS0kF/9/Or/q6H+X/+
/j+3v7t2/gw99ae5/Wn2fyf9XUnbry0cv8n7Wf0d/06/fpB/rV//yP+1f+D/9vztdn8n/SN/Xb9+h5/f9Sf8/Pz8/Pz8/Pz8/Pz8
/Pz8/Pz8/PxX+zvo78r61K2MSrzydDF1+bt9RStXlvuxDfldeX1pB/9l/mhsPB2cs+sP/75g/bu3958J+7uXX/ywft/4ceDy6w+P
2gH6uwrzp4/+rryf//q7Cw/jDvu7Ml8/q/TQ3zXS70Ty+Z/9+F25ftzkf2Ey9NCv6U8r+/P3d9n2/wnrP1aYP/n7O+s/Xu4v/Kc8
f25o/ujv+PkP9OsfG/Cn7Af56/qH3H79Zht+12/w8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz7/F3uP7d51vKU+K0/Nsy6rTK/Mrr+f+l
tByzftzB/oH/zOP34DHdkhfXr+rvPt9/6u/0d6ePtvq77esnpu/vyl9/VxLOn9DfnTr/Vz1gfbr/7Hb9rKK/O+IATu5f2d9N+9M+
1o9z/8m/uj8tHfR3z49fQ/J+Nq1f/3Wdf9Kf8vc7f/SD+kd+fv0j//ot6t2vf+Rfc/5z4s/TDw7J+80heb/p+h9+fn5+fn5+fn5+
fn5+fn5+fn5+/s77u1WFWJnGX6/OdZfZt/8uzDbPxUbv0pXv6rTj/U8VIf/slmhsTPq7UXJYxhdOFv3dx/tP/Z3+7pRRxp8n7O+G
56P1i/6uVO/vSur+roz6u6T94NNh0Xl/N+rfO+jv9DvHTfx7rF/WV39q/vPvWj+uh/nfQT9r/c0r/G/603z9WkntL0PG9R/1d/z8
+jV+/qx+/SD/+/OHr/wDP//d/PrNSn7XX/Hz8/Pz8/Pz8/Pz8/Pz8/Pz87fj76C/ez7lWyYN0yT5elo1bdZ/lee46/Vp2DLJwp6v
7SnTdOxtE9aAf1i8NukO/mhsLNBzXH8bS/c/+rtDHhwO6++K/u7rUca/pu3vRrXdjv7uwOu3h337Px77X3/XxLhTf5fr+nn9zqnz
Pnl/N+yYP4P5b/734r9vf+r4repPOH9O6NfqHL/6uyr+lP3jkLwfLPxV/frHlvz6Nf40/oE/fX/HX9evv+O/nX/I7c/bP+o3+fn5
+fn5+fn5+fn5+fn5+fk76+8m3VeZZVfldQBUxmcoyzinK8N4ybtp5fX7fR9Prr2vj2Y/4Ev/cLF/6MIfjY0h6/W3sXT/o7875MHh
iP6u6O+OGffr7ybv6Y2SYP3dAXPpd/7o706Y/6sesD7df+rvLtwM/d3lT9j2+s1/878D/33n/1Acv1X3/1CS92tJ9/+oAsvrLwn9
Ofu7sT9jv3bV/r/Cn7b/0g/yH+HXr/Gn8X/Zv/A349cP8u/z6+/4+TP2m/rH6/1DV37Xf/Lz8/Pz8/Pz8/Pz8/Pzd9bfvQzb1p3O
mL9PMl0zqizeumYXr+rX+Kv4o7Ex7u8G/d3++0/93cL/P7zMDpy6s6VEF/1diZ77uzK6Z55tzJH+ffs/d39X9Hcnzv9VD1gf7z/1
R9dtRtr+riT1D1/MH/Pf/E/v15/y82/xd7L+I//1fuv3VfWX5P1d0Q9e7++jH9Q/8h/h199tP//83fkHfv7b+/WD/Pv8+jV+fv3j
lf6Bv5Lf9bf8/Pz8/Pz8/Pz8/Pxt+vvp72bvsM7avOfV7obyfD1FeZ2BPf7I0xvpZfqN66Kwhe9M5x+68EdjY8P//1x/9+7+s4v+
7vN+WN/fFf3dTuHSLV31d//m//z4Lcv93Vn+Lf8i+jv93ef5v+oB6+P9p/7ius3Q313+hG3//jf/zf/0/lutX6Zf4z/Kn/75D//l
/uTrJ57Q31Xd/1n7wXLR+y8J5o9+cKVfP1jVrx9sw99aP6j/4ufXD7bo1w/yf+3Xr/Hz6x+v9Osf2/C7/pmfn5+fn5+fn5+fv6/+
rjwXXGWWb5WVr+qeo7ifRKzMC7Hn8GvYsCbb7/cvvKV9nX/42r/02zP8w4n+aGxMZsbr668G/d2H+0/93Yf+rujvPtpW93el1f7u
1UG1rr+71r/93+Wnv/tvGunvqh/Kob+r8Ijb6P3nvs3Idvzeur9ron80//nr3H+6/+fX39n//Bv9eddPPL7/qrr/0/qT9oP5+zv+
un79Gv/G1+99+fWDG/z6L35+fv0d/139+jV+fv0j/3q//rGW3/Xz/Pz8/Pz8/Pz6uxTr382zuFcRWPkYZ82yvlKeu6Eyf3U7v6m8
3/OvIrIc/mGzf2jQH42N4cP1P8PjC62sP7Lk198du1Pf7u/J48Cn/q7o7zbYfn4tL25/9Helwf5uiM/9XXnR35Wh3es/9Xf6u7XP
n1c9YH28/9RfnD9v8vd3Oe9/9HetPHHmd/95R3+x/5P6Pf/hv2W/mbcffNr/+sFr/fo1/tv5hy7WH9Tf8R/h1x/x8/Pzb/IP/Nf7
9YP8X/v1a/z8+kH+9X79Yy2/foGfn5+fn5//bH8v/d3CAmuzJ+GlfMqxRn+k/N32eO/z6Sd/qosWSGVVzHa4f1jrH/b6h6T+aGxM
e8vl60+GFq+/jaX7H/3dMTv17f6ePA586O9Ke/1dfHr/Qn+36/nDpv5ueJo/zfR3n9cf1N81MRro73Y+YH28/3T9+ZnzJnN/0VN/
l/T+R3/Hf+f7T/2d/c/Pn8/fQb/Gz9/O+onDZf6s/doJ+19/t8k/8B/rX9tftNo/6gdz+fVH/Pz8/Lfy69f47+nXf/Hz81/q1z9W
9esf+ff59S/8/Pz8/Hfq76bbtPzkqQzTZ+dPa6zNcrFh+m1lWoiV5xCsrA/U3r86ePVDWvNv/dKCf9jvHw7xR2OjrOjv/v4v0Po7
/V3+/q7N/mje35X5r130d+W/g6DMzp/o707fuqK/O+++ceUD1sf7z5f9nf7l+0nz6O+S97P6u1pPmBPP/+zHbw9+/U4TTxzsf35+
6yfm8Wfv1wr/5f7HVxbOf2byN/T/r7tTf1cSr3+Xtr8b9IMn+ofk6yfqB0/0D/z6I35+fv6v/AP/9X79IP/Xfv0XPz//pX79IH/o
H/U7/Pz8/Gf5O+jvPj9klOmqYpOT8ZMT86XMV1f7vb0sfGH85//7htfr25U9IdsK//xv2esf7uiPxsbw/v1T69+tvf9c198Nd+jv
Ztcvjc7L1Z0t+rvznj/M+7th9uukvxua3f8vb8/Y3423aNTfFf3d0feN254/D7n3v/6uir+H/q4k3v9//V1x/PLvh/PXfeLAb/7w
8yfyW//a/t/lz9vfdebPuv5gqn5w6Gn9PusPHuwf9IOt+/WDe/36Qf1RG379Ef+d/Y5f/s1+/R3/1379FD8/P/8Gv36QP/SP+il+
fv1drvXv3j9slBdPTCZPWabrypXytNrcaMG1jz/3NWnTNw+fOrN3/iGPf9jmH770R2NjUgtmuv42lu5/9HfH7NS3+3vyOKC/O8G2
rr8rVfyb+7sy/jxHf1de3P7o74r+rvbQ31V+4I2Efv1dbf+gv3P83tqvf2niiQO/+cPPz89/D/9g/Uf+79ZPzNYP6u/4X51/W+fP
29/pB2v59Xf8h/n1R1X8+iN+fn7+DX79Hf/Xfv0RPz8//wZ/8n5N/8h/hF//eLVff5fL31t/Vz6WV+XFGcnHew1lfuKyPG78jfHK
eCW3pZztXX1UPi8Vx3+NPxobQ9brb2Pp/kd/d8xOfbu/J48DK68/0d9tsaXs7/5bFE5/12h/N5k//z5N4n+7Wfq7ag+8kdCvv6vt
1981csepv6sL13/x39Kv3+Hn5+e/2K9f44+W1h9MuX5fdv9Qw5+3vyv6O/6b+fV3/If59S/8/Pz8/Po1fv7G/fopfn5+/g1+/WNV
v36Q/57+2/d3jweNpfanvNoJb5uxp3etyuxn/91S3qRGq+5X3/qHff6hd/+w3x+Njfn5k0F/t+n+c3j+aV33d6G/O9wzs037uzL+
vK3+bnjy99XfLfePw7/9P1Ta/99sl/5Of3fYY0TWfqqk7r/0d+bPd5ugv2sCrv/iv+Xxq9/h5+fnv9qfvF/jr+vP3N8lXb9PP/j+
/PPZ/sT93ZC8Xxv0d3X9+jV+fv0LPz8/Pz9/6Nf4G/frj/j5+fm3+vWDtfzWT2zD338/2E1/V9ZMuqc3/15/a/lLyUr5LaAeLV6Z
nw8vr9dfe70MW1k8VE7wD434h9P8wyb/3zdEYyPt9bePu6MW+rtBf6e/2+2Z2Trp73738N9N/6H++1V/V2HO6+/0d4c9Ruinaviz
93dFf1d5EzKv/zi/q3X9f6UHXv0a/y3nv+PX/ufnz+cf+M2fe63f99Tf5dz/ifvBon98jb6i/7J+H/8t/fo1fn79CD8/Pz8//9l+
/R3/1379ET8/P/+N/NZPrOq/Tz/YT3/3OD9dXuVX5V0tVn7f3SnzyKws/B8Ay9I6eW/WX5v86aU/3IR/2OAfKvmHI/3R2NDfbbv7
e9HfDfo7/d1ez8ymv9PfnbFdXfV3lfz6ux+/fqrGpE/f3xX9XQv3m3n7O/2I/X/E/OevdMLB/Oe/8f0nPz8/fz5/2vX7kvd3/fj1
d1/7h+7X7+vKb/1B/n1+/Ro/v36En5+fn58/9Gv8jfv1O/z8/Px38+sHa/nX94Md9HdlXnQtR2JlOQFabOL+vve3WHn8ZfMTUr+T
viwmXy+PhbLwXUf5h33+4Rj/kMKvvzt+6O/O2Klr7v/1d0d5ZrbE/V0ZPzf42cN/N7XW332x//V3lQ/l7P1d0v7osR36qRqTXn9n
/hxxv6m/q/aKJblfv8b/1QkH85//xvef/Pz8/PwX+/P2a/x7z7Z96x+aW79vV7+WtR/UP75D69f4j/UPB/r1a/z8+hF+fn5+fv7Q
r/E37tfv8PPz89/Nf4d+sJf178pSOjdfla68b4J+3pf6PWX/e1spo1Ts3/96tCynZOXl6mxL/xSTBeHO9A9Z/MM7/3CCPxob89df
g/5u/f3noL9rvb970Vi13d9Nmq/x51n7u1+//q7O/J/6I22/8/dpxv6u6O9q+3P3a/q7VuZPYn/e43d0H+T651p3Qfz835xwSH78
6u/cf/Lz8/PzJ/Lr1/ijpfUH9Wv8DfoH/SB/Tr9+UH/XmF9/wc/Pz8/Pz6+/4z/Vr9/h5+fn5++3v3t9hmh+y5scbCkYKrPfLO/W
zzv7/b8EfwV/NDYG699te0NCfzf5mK6/K4n6u/Gv/76apb8bN3cv+7sh9HdXzX/9nf7u0P2vv6vhz97flez9XdHf1Z5Cn95/cf2z
/c+vvzv3ORC/+09+fn5+/hT+5P0af11/5v4uez+YdP1B6/dV8E/6L/0gfx6/flA/2Jhff8HPz8/Pz8+vv+M/1a/f4efn5z/D30F/
VxYWY/sYiS18U5n+qKfzfj9fLq9/alnZp734wu39w5J/OMyvv7vOr787dqeuuf/f3N+VBvq70lN/VyJFfzf16++qzH/93RX93Qq/
/q6uX39X2a+/qz3/8x6/0YFff8d/Z7/538RzOP0I/y395j8//y37O/ufP/v6fUM76/dl9w8X+fP2g4N+sDe//q5h/8CvH+Q/0q+/
4Ofn5+fn59ff8Z/q1x/x8/O36e9m/buyZh20Ut73ZdO11qa3ldWR2a512db5B/5j/dHY0N9tfEPlDv3dqvv/XP3do6XK2d+VNvu7
Z/9Tf7fUD/71d2Voff/Hgr/x/q58mP/6u8p+/V1dv/6usl9/V3v+5z1+o6P+zv43/+94/OrvmngO5/p//lvOH/Ofn5+fnz9hf8df
mf9NP2j9vmv9+sEK/qGn9RP1g1v8+jv9Hf+hfv0FPz8/Pz8/v/6O/1S/foqfX3/XeH+3orsqs3yrvFiUrcy/afJdozP4L+qwz4XY
x3+b1f5h/aJyf/6BX393ll9/d+EOn3zU331vi6nwv0zh8fnTLUn7u6K/u7C/K6/nv/6usr+D/i57f5SrX5uu36q/qzt/9HdRewol
9+vvzP87H7/6uyaeQ7v+n/+W88f85+fn5+e/1fqJ+rvO/Bf2d/pB/h1+/V13fv3gSr9+jZ9ff8HPz8/Pz8+vv+M/16//4ufvv78r
C5HXpxqoPH9eXkVj5a/wKss/4H0MuPQXluXMjP9CfzQ23vd3g/7u/f3n6/5u+W/S310+Mvd3JdL1d//N/TLv735uSdrflaX+roT+
rtqxnLi/S93vhP6uxj6P8fGbd/7r71qZ//qvSv7k/bV+jf8rfy/9aeT064/4bz1/zH9+fn5+fuv3Zdr/+rsj+Nv9f2+T6wcr+a0/
eJ3f+n09+y/rB/P2U/pBfn79BT8/Pz8/P/8Kv/6O/2u/fo3/PH8v/V15FfmMTtg9zj2W4XH+/fnV6UIjVqZr5ZXx31LGmVh523yV
4XU79iZSOsw/fPQP2/xDD/5obFj/buMJZf3d5KP+7itbmTkX+ruStr8bYrm/K/q7M2f7uv6uyfX7Vh/L+ru6+19/d+k+j/Hxm9qv
vzP/v/NH6v2vv+M3//V3/F+9AOWv+hrA/Dd/+Pn5+flz+Af+uv6k/V05qb+7yp+4Hyz6wZr+xP2dfvCGfv2dfo2fXz/Iz8/Pz8/P
v9Kvv+P/2q+/a9nf3fp3b6uw8q7UG+2vsrT42tOXR78ps9dYr8Kj8tp6jn841j+04x8O8UdjI9/7j893R/q7Ou9/6e8OsGXv74ap
f7m/G9L1d6OV+16tP9hcfzfpB1/Of/1dZb/+rq5ff1fZr78z/7/zR+r9r7/jN//1d/w7T1jl9uvvzH/zn5+fn5+fX/94Kf9+6/dl
7weL9Qcr+Qf9IP9Wv35wtz9BP3iBX7/Gf5hfv8DPz8/Pz8+vH+Tn199l7+/Kwrpps/ptfA7yueFaCrvGu2m83NpoLbxR+1XKuiXh
Vn79W/9z+taBfzjcH40N/d3GE5r6u8nHbP1d0d8d+Pxhob/774P+Tn939jbq76ruf/3Rpfs8xsdvar/+zvz/zh+p97/+rgl/SX78
mv+VNqF04g/+is+h7X/+nSdsk89/fn5+fn5+/kT+vP0af12/9fsq+fWDFfyTfk0/WMuft7/TD65D8+sHW/XrL/j5+fn5+flX+fV3
/F/779LfPb9OKJ/XYivzcxrlrwcrCwuzPVqx0Z/+q9rK2mRtqUu60D986x8O8g/V/dHY2HL+X38X+jv93ZG2WTTVbX/362+9v5vs
/4V/Ef1dzUer0Tbq76ru/+z9VLJ+bXL8JvTHw6+/q3r86u8q+/V35v8BfvO/0ibo7/j5+audsM3t11/w8/Pz8/On8jfRf2XvB8P6
gwfvyTP9ydfvy94PFv3g9X7r9zXh19/xN+jXD27z6xf4+fn5+fn59YP8Ff299Hdl3mqVd+3b9GzAeD+NnrMvL69XZuu1fUrNXn1L
WfiU/1J/NDasf7fxhJr+bvJRf/eVLXt/9+R/9Hc/2pf9XcnU35Xu+ruiv6vl199V9evv6vjj4U89/4v+rr4/Uu9//Z35f4Df/Df/
v3jJqZ/i59ff8e98PaMf4efn5+e/S39n/T7+G67fN+gHa/utP3idf9AP3tVv/T79HX/Tfv3gKr/+gp+fn5+fn3+VX3+XqL8rK5Ze
Kx9vLmsWTSvDy+f0Zc0fXF4PLoH/w3p2Cf3R2NDfbTyhpr+bfNTffWW7X39X/vV3g/7uvHmuv9Pfnb3/9XeVHr+y+/V3VY9f/V1l
v/7I/D/Ab/6b/1+85NQP8vPr1/h3njPSj/Dz8/Pz86fwD9YfrOm3fl8l/5DXrx+s6k/c3+kHb+jXD+rX+Jv26wdX+fUX/Pz8/Fv9
g/3Pv8+vv0vT302foZblkqs8rcBWnguyMl+i7ella3kOxUpZGX2VtV8/1v/qb+dP0t8N+rv195/6u2b6u/L29qT9Xemhvyvt9ndl
Nk/0d/q7M/3Z+7uiv6s25/V3Dazfp79rwp+4P+pi/pj/9v9N53+k9Yf+jp8/tX+w//m/P4HHz8/Pz8/Pz3++3/p9tfzJ+8GSv79L
6h/0g/xb/frB3X79oH6N/1D/kNOvv+Dn5+ff6h/4a/mHHvz6uxz93Wz9tPKxEVuI6srsye4oJytloR3btOLa6Mnocje2yz/c0D8c
44/GhvXvNp7Q0d9NPrbW35W3t1fu72a4MguK7tTf1e/XPvWPEZn7u7I4//V3Vf36uypz5vdz/V1tv/6u7vGrP6rr19+Z//a//q7W
JvC34Q9+fn7+Oq9n9Av8/Pz8/Pz8F/ibWH9w0A+m81u/792ReIU/eb+mH7zQP+nX9IN38uu/+PkP9esH+/Lrp/j5+fV3/BX83fR3
889KmURcf79+WFhtXoRNjsYyjPbtNCIrr39S+RSLrfcPSfxPEd2x/uEgfzQ29HcbT4jo7yYf9XebieMb1vV3f7Vdtv5uyN3fPX6T
vb8r+jv93SH+3P1d0d/V9uvv6h6/+qO6fv2d+W//6+9qbQJ/G/7g5+fn599zApKfn5+fn5+ffzVff8d/sV8/+O6e5Aq/frCqX7/G
v9Wv/+Ln1w/W8esHO/Xrv/ib9uvX+M/zd9DflZdLrM1vLS97oN8V2f5+X17+wFEJ9vfqpGxbie1lcPb2e07wD7f2R2NDf7fxhMLH
/m7Q37Xe3/1rxK6f/9n7uyH29XdDlMdaePq78+f/tL8r0VN/V/R3Tex//d2lfv2d/u6Y41d/VNevvzP/7X/9Hf83L9n4a/uDn5+f
/+o3LHL79Rf8/Pz8/Pyp/E30U6G/S+fvpr/TDy4ciVf49YPX+Qf9IP/3fv0XP79+sI5ff8ffpF9/17lff9eyv+P1794sx/YuJSvz
JdPK0l9R/lqwsu4nv72xW/+w0T9c6o/Ghv5u4wty/d3kY77+rnTR35X2+rthXX9X9HcHz/nZPP/c3xX9XSW//u568+h419/V9uvv
6h6/+qO6fv2d+W//69f4v3nJxl/bH/z8/PxXv2GR26+/4Ofn5+fnT+Uf9IM1/frBWv68/V05s7+7wJ+8H7R+XwW/fvC2/uFAv/6L
n18/WMevX+Pn1w9e79ffpejvljbtRYn1umj7Oz9QFjq45TBudXi2oUP73j+s9g+39kdjQ3+38QW5/m7yUX+3mTi+IVd/V+KL/m7q
198dN+dn81x/p787e//r7y716+/0d0dsS9EfVfbr75rwl+THr/nDv9Mf/BU3gb8Nf/Dz8+vv+O80f/Qv/Pz8/Pz8qfxN9I/6O/6L
/R30g9bvq+rP26/pB+/k10/x8x/q1x/x8/Pzr/Tr7zL0d2+2tXwqwqbJ2Ojxsrx75VHWLvy2Mgs7wj8s+oeu/cNX/mhs6O82vqDV
300+6u82E8c36O/S9HdTv/6uyqOV/q6V/T/o1/j3+Ic+5o/+rtL9j/7O/j/Ar78zf27qD37+L18y89f2Bz//Df36Nf4bzx/9CD8/
Pz8/fwW+9fv4L/bn7QeH3P3goB9swq9f48/g13/x8x/q1x/x8/Pzr/Tfbv278np9tMe/50LLNX5hWh7JVxkHYI+/sDxWFV+ux14s
kLd2gbgk/uFa/3CGPxob+ruNLwj1d5OP+rvNxPEN+rus/V3R31V4tNLftbL/9Xf8u/z6u5rHr/6utl9/14Rff2f+3NQf/Pz8Oc9/
6gf5b+3X3/Hfef7oL/j5+fn5+TP5rd/Hf0d/B+v36Qc79J/af+kH+b/y67/4+fWDdfz6KX7+/vz99Hfl/QPFeFXA8nLFtfnP+nmp
XZ77sIVl2Vasv1aea7Tb+4d1/uFw/7/fRGNDf7fxBZX+bvJRf7eZOL6hp/6udNvfFf2d/u4gv/7uenN01t+V0N/Vnj/6u0r3P/o7
+/8Av/7O/LmpP/j5+XOe/9Tf8d/ar7/jv/P80V/w8/Pz8/Pzb+Xr1/gv9lu/j3+Xv5d+MG+/ph/k3+fXf/Hz6wfr+PVf/Pz99ndl
zfprpTx1Y+XpjrksxULl0Y09527P7debXV1e9F/f+Yeq/uEi/7DCP+z0R2NDf7fxBYn+bvJRf7eZOL5Bf6e/O2hC6e/0d+fdr872
v/6unl9/V3/+6O8q3f/rd/jvO//1d/zf+oOfn5+/yiboj/i/esPC/ue/8fzRL/Dz8/Pz8/Nv5Vu/j/9if97+7mn9Pv1gJb/1+6r6
9YO1/PrBWn79Fz9/1v5IP8jP319/F40Nfn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+
fv4+/Po784efn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fX39n/vDz8/Pz8/Pz8/Pz
8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz6+/MH35+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+
fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn7+fX79nfnDz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/P
z8/Pz8/Pz6+/M3/4+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fV35g8/Pz8/Pz8/
Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8//z6//s784efn5+fn5+fn5+fn5+fn5+fn5+fn5+fn
5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fX35k//Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8
/Pz8/Pz8/Pz8/Pz6O/OHn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn3+fX39n/vDz
8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz6+/MH35+fn5+fn5+fn5+fn5+fn5+fn5+
fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+/Z35w8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/P
z8/Pz8/Pz8/Pz8/Pz8+/z6+/M3/4+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fV3
5g8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/v/7O/OHn5+fn5+fn5+fn5+fn5+fn
5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn3+fX35k//Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8
/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz6O/OHn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+f
n19/Z/7w8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8+/z6+/MH35+fn5+fn5+fn5+
fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+/Z35w8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/P
z8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8+vvzN/+Pn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5
+fn5+fn3+fV35g8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/v/7O/OHn5+fn5+fn
5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn19+ZP/z8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8
/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8+/z6O/OHn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+f
n5+fn5+fn5+fn19/Z/7w8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8+vvzB9+fn5+
fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+/n1+/Z35w8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/P
z8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8+vvzN/+Pn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5
+fn5+fn5+fn5+fn5+fn1d+YPPz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/P/8+v/7O
/OHn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn19+ZP/z8/Pz8/Pz8/Pz8/Pz8/Pz8
/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8+jvzh5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+f
n5+fn5+fn5+fn5+fn5+fn59/n19/Z/7w8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz
8+vvzB9+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fv2d+cPPz8/Pz8/Pz8/Pz8/P
z8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pv8+vvzN/+Pn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5
+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn1d+YPPz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/
Pz8/P7/+zvzh5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn59/n19+ZP/z8/Pz8/Pz8
/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8+jvzh5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+f
n5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn59ff2f+8PPz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz
8/Pz8/Pz8/Pv8+vvzB9+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fv2d+cPPz8/P
z8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pr78zf/j5+fn5+fn5+fn5+fn5+fn5+fn5+fn5
+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn59/n1d+YPPz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/
Pz8/Pz8/Pz8/Pz8/P7/+zvzh5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn59ffmT/8
/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pv8+jvzh5+fn5+fn5+fn5+fn5+fn5+f
n5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5/fMIwXx+/2Y7lM/9S/H/jvv58DcX48xvivfr6l5Lv/+SX8fOTn3+fP
+vjLz3/gZvDz8/Pz8/Pz8/Pz8/Pz8/Pz9+kPfn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn7+7H7D0N/9O3S2H2yhv9Ov8R/iz/r4
y89/4Gbw8/Pz8/Pz8/Pz8/Pz8/Pz8/fpD35+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+/ux+w9DfnX1Qzn8zqqXiJ8Vr9/6nvL2/
+f2En3/P49VkG/n57+TXn/Lzh+s/+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+f82g5+fn5+fn5+fn79hv2Ho785+Ufv2
aP3XkDTZT630//uUn//tZrzyR+v+WOMPfv49W5D7/Cc//539+kd+fu8/8vPz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz
8/Pz89/Kbxj6u3MPyjJf/258tP72d6W9+58lf8z90XY/yN96P1hS94P6x2pPejry53z+yc9/Z7/+kf/Wfv0gPz+/87f8/Pz8/Pz8
/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/PyhvzMM/d324+7p08ktS/3dqBaJvwivwv3PZv/s3qZuP5jdH/37I0k/uMEfLfqDP2V/
13y/+ebfp+TuH/mb8ed8/cVffQP4+fn1X/z8/Pw383v/hZ+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fn5+fv7bfMPR33x93T59O
bumrv1tcv4//rv747I/P/WBJ3t/x1/W33Q/GJ3/oB/l3zS/9HT9/6B/5924APz+/foqfn5+fn7/eZvDz8/Pz8/Pz8/Pz8/Pz8/Pz
8/Pz8/Pz8/Pz86f1G4b+7vvj7unTxy0lJv1U+flv1t/9Yhrvv/hb8Ed+fyz4az/+rui/yvS7Jv7I7E/d3zXij71+/WCtJ838Dfgj
r1//yH9jv36Q/+sN4Ofn56984pyfn5+fn5+ff+dm8PPz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pz8/Pf3m8Y+rvvj7unTx+3lNElkv++5XfB
qcfR2nQ/teAP/kv9HfWDpb1+MD77Y+6PBX/15w9b+rve/Kn7u9J4f/exHwz+M/2R1R+38Ad/A/6Mr9/1g/x39usf+b/eAH5+fv7K
b7zw8/Pz8/Pz8/O7/oefn5+fn5+fn5+fn5+fn5+fn5//zn7D0N99f9w9ffq4Zdp//Qstyst+qgQ//yd/5PJv6O/a9MdN/FWe/2zy
R3v+eO+ff6Hd9QdjlT/m/sjeD+ofT/VHVn/wJ/BHXr/1E/n5+Wveg/Lzf7MB/Pz8/PwHvMbn5+fn5+fn5+fn5+/ZH/z8/Pz8/Pz8
/Pz8/Pz8/J37DePO46jj7unTxy0//dToItvf2uKx2leG/mvBH/xFP7ijv0vXD4Z+MIk/T3/X1fp9+jv+lUfEsj/467xo5G/AH3n9
wd+KP/j5+ZOdv+Xn/3ID+Pn5+fnv6Hf9PD8/Pz8/Pz8/Pz8/f53N4Ofn5+fn5+fn5+fnNwyjof4re3/Hzx9r+7vM/WN0tv7g6KYc
/sz94PwL7a7fF6v8k6//+nP3a0V/x//h4H7rD37+PdvXhT/4q530KfpBfn5+/r2PAPz8t/Xrp/j5+flv6nf9Nj8/Pz8/Pz8/Pz8/
P/8t/MHPz8/Pz8/Pf6nfMO48jjru/h17z1+Y9lP/rlZ6JBfRXD9S5l987r/4+V/64/P8z9PfPfyjt9j78If+8VL/6AsdrN83+fqv
v4nr/7P7467+9P2dfpC/R3/wJ/BHXr9+kJ+fn/+Wfv0d/739+iN+fn5+/pR+1w/z8/Pz8/Pz8/Pz8/Pz8/NfvRn8/Pz8SfyGcedx
1HE3fivl7wv/Fiqb93clQf/1zh/8V/kz9Zvx2Z+0X+Ov6498/ogU/d2+9fsipv7HhXA1nz/f3N/g6xf9IP+xR8SyP/j592wffwP+
4K920rDoH/n5+flv6Nff8d/br9/h5+fn5+ev8xyan5+fn5+fn5+fn5+fn5+fn5+/XX985TeMO4/5EbTvuPs5FV6m58XH/Vc5u7/j
r+uPA/xPX0jWb8aCf7G/S+X/69eK/o5/rT/ixfp9o0P92Z+mv5v5q/VrO/vBZvxxiF8/eJk/5n793bn+6N0f/Px7to+/AX/w8++8
f9If8fPz89/Rr7/jv7df/8LPz8/Pz8+/+xwvPz8/Pz8/Pz8/Pz8/Pz8/f6N+w7jzmB9I+w6/32Nvel7zqf8qpfF+jb9qP5Lf//SF
p36wdX8s+GPqb7v/yu6PJX9v/d3opvb98y900d/pB094/fJlPxiZ/MF/XT9l/T5+/oT+4Oc/3R95/dYf5Ofn5+fnr/MMgp+fXz/C
z8/Pz8/Pfxe/61f5+fn5+fn5+fn5+fn5L/Abxp3H/EDad/j9HnvT81J/PUXefo2/rj+u8scB/qcHpMb7uxLv+rXyul8r49qlVX+8
7e9a8Ed03A/+bdGsv0vmX9uvtbh+3538EWn7wXT9Gn9dfzToX7NFT1//vdfXf/Hz81997pC/AX/wVzt3XvSP/Pz8/Pz8NZ5B8PPz
6y/4+fn5+fn5+V0/zM/Pz8/Pz8/Pz8/fld8w7jzmB9LGQ2/WT5VRdDHqv0qW/ou/rv9xaXxc3A/GMfM/Rhe0jfvBNP3dgn+pv0vS
D7bsj+isH5x/cbx+X6Rfv+/fOpyRt18r+sEm/Nbv4//KHw36Y5U/5v7QD9b1Bz8/f+jv+Lf7g7/auf+iH+Tn5+fn5+ff/gyIn59f
v8DPz8/Pz8/Pz3/Ra0h+fn5+fn5+fv77+A3jzmN+IG089F73XyWmPUV7/Rd/Gv8F/WAc40/d3330R0p/4v4ulX/+jzPu70rH/d3k
X4T/UH+H/WBkWb/vJv1g0Q9e648G/bHKH3O/frCyP/j5+UN/x7/dH/zV3rso+kF+fn5+fn7+7c+A+Pn5+WttAD8/Pz8/Pz8/v+v/
+fn5+fn5+fkNw7isn/pdtWmhp0jRf/HX9ceSP09/97ggb7x+X3TRDwb/2f6Y+/V31/sj5v1aSd7flW77u+x+/d1N/fHeH+v8+rvL
/DH3h37wVH/07g9+fv7Q3/Fv9wc//877J/0IPz8/Pz8//45nQPz8/Py1NoCfn5+fn5+fn5//0tfw/Pz8/Pz8iirD2HX8Xt1/leT9
Gv+1/nz9XRn3d9bva8GvHzyzf1lYvy9G/eC4v1ucUSn6u9FNL44I/jP9Edbvq+3X3/G/25TF1+Zv/PrBy/zRrH/NFi369YOV/cHP
zx/6O/7t/uDn33n/pL/g5+fn5+fn3/EMiJ+fn59/3wbw8/Pz8/Pz8/Pz8284h8LPz39Pv2HcecwPpI2H3lM/UpL3X/x1/RX7wTjG
30F/N1m/L2F/l90fr/1N93dlS3/X+vp9ES/7tZK8vyv6wSv9Ha7fl7Vf0w+e+Ppdf8d/vj/mfv0d/1f+4Ofn57/8zdOiH+S/r19/
wc/Pz8/Pz38zv36Kn5+f/4sN4Ofn5+fn5+fn5+ffcA6Fn7+W3zDuPOYH0sZD78j+qyTv1/gz++MI/0/fEs/9XUm/fl/W/i67v+F+
MOJzf1e66O/GTeTPPdObf5HG/fq7a/3Rzfp9RT9Y1x/Z/LHOn65f46/rj7T+mPv1d/xf+YOfn5//8jcfi36Q/75+/QI/Pz8/Pz//
zfz6I35+fv67+l0/z8/Pz8/Pz8/Pz38jv/7OMHaP+YG08dD7op8q+i/+Lvu7RX989Ovv+Hvu70ru/q587O+y94NFP3iCP/SD/If4
u+0HQz8YR25K9/5I64+5Pxr3Rw5/3NYf/Pz8/Pwb3/wq+kF+fv0CPz8/Pz8/P3+S69/4+fn5+e/pd/05Pz8/Pz8/Pz9/Jr9h3HlM
TkZuP335qp8qyfs7/rr+Gv1mHOH/qr8rbfVfRX9X19/6+n2x6J9s3HM/GC37F/5x8vZ32f0RHa0/GGN/6Nf4d/nf93cJ/NHx+n36
weM2pXt/pPXH3K8fPOvk5k38wc/Pz8+/8c2voh/k53f9Pz8/Pz8/Pz9/kuv3+Pn5+fn5M/pd/8/Pz8/Pz8/PbxjGjuP38P6rJO/X
+Kv5o4I/Tvan7u9K5OvXsvub7wcj7tDfleT9XdEP1vBH6O/4j/XHS7/+rqo/9INx5Kbs8Qf/df5I64+5Xz941snZlf7g5+fn5+/K
H/wJ/MHfgD/j++/6BX5+fn5+fv67+fUv/Pz8/Pz8lTaAn5+fn5+fP5nfMO48JifDtp8+e9l/Pa6In/2Fs8+b7Nf46/r1d3X8j/X7
XrUtafvB8rlfK+32d032g/HCP9q45/6u9NLf6Qev8nezft+vP5Ku31f66Af1j9X8f7/prL/TD57kj/X+6uev+PWDp/jfvXuqHzzz
5PJKf/Dz8/Pzd+WPW/iDn/+efv0CPz8/Pz8/P3+y6z/5+fn5+fn5q2wAPz8/Pz+//s4w9h2/u/upEqNjb0v/VQ7tX67v1/h76gfj
QH/a/q686u+y94MJ1x+Mrf1ga+v36e/4v/eHfrC6P8b+SNp/Ff1dZf/fqwXr9/Ef6NcPHnEq7Ub+6Mmvv+NfuUXL/uDn5+fn78of
t/AHP//X/sjod/0/Pz8/Pz8/P3+y61f5+fn5+fn5+XdsAD8/P39Kv2HceUxOZmw//dFFf8fPv/P035b+7pVWf8f/8Pe0/mC+/q7M
Ni5Xv5bdHxv8Efq7Ov4c6/f11w921N8V/R3/gX793V39cU9/ZPK/e/dLf8e/YYuW/cHPz8/P35U/buEPfv6v/ZHR7/p/fn5+fn5+
fv5k19/y8/Pz8/Pz8+/YAH5+fv2dYdxuTE4GbD99oP/i78UfB/oz9ndl4tff8e/wx6y/+/t7noShX+O/QT94o/5OP3icf3RETPu7
xP1g+v6u6O/4T/Dr7444Fchv/b4z/O/e/eJvwB/6F35+fn7+TNffduEPfv57+l3/z8/Pz8/Pz8+f7Pphfn5+fn5+fv67+fVr/DX9
hnHnMXkxvf3l99H9FD9/1v6ujPyX9nflS38s+fP1X9n9+rva/U5Z6L9K8n6t6O+u88eSv7v+Tj94hT/C+n2t+d/3d/rB0/1h/b5m
/dGiP1r3xz390ZNff8cf+kF+fn5+fv4k1w//Efj5v/JHRr/r//n5+fn5+fn5+a9+Bs3Pz8/Pz8/Pfyu//s4w7jsmL+ZWvuabfJqu
/+I/2l/68O85/dFFf7foT9R/ZffHfP6H/q7C9duTn5ewXyv6uwb9+jv+Q/2hv6vk73v9vgT+0A826dcPnuSP1v1xT39k8r9790J/
x/+1P/Qj/Pz8/Pz8F178UPR3/If4I6Pf9fP8/Pz8/Pz8/PxXP4Pm5+fn5+fn5+c3DGP18XtQP7UUgWTqv/hb8PfR35XY52+nv3tl
0w8e9/znRv3do23J3N+V5vs7/WDV6+e39IMR+kH93bHr96Xo7xL3g/q7lv0R+rtKfv3dSf5o3R/39EdPfv0af+jv+Pn5+fn5+S+6
ekN/x3+IPzL6XT/Pz8/Pz8/Pz89/9TNofn5+fn5+fv5L/YZx5zE+dDa/J6Rf4+fX393cH8f49Xf6u7v7461ff1fDn6hf0w+24x/9
i3TT35Ve+jv9YB1/6Aeb9DfbD8Z6f/Aftind+yOT/93Zf/0d/9f+0F/w8/Pz8/Pzr92+PwI//1f+yOh3/Tw/Pz8/Pz8/P//Vz6D5
+fn5+fn5k/kN485jfOhsfk/l53LUvP0Uf9HftbR+n/4uoT/O8Ece//jdxFEt8nQoZO7viv7uGn+k9m/q79L49XeX+aMjf4z94yes
XfZ32f36u/r+CP0d/y6//u6Qd6P5s/hj7Nev8Yd+sL337/j5+fn5+fkbvP72j8DP/5U/MvpdP8/Pz8/Pz8/Pz3/1M2h+fn5+fn79
nWHcaIwPnc3vSejX+EM/eGB/940/DvTr7654/tNtf/dbjTS+fl/Ezv6ujK/2T9gPZvPr75rz/91l6e8O80dH/njpj9z9mn6wmr/v
9fuC/2x/WL/vWn+s9wf/YZvSvT8y+eODX7/GH/n7O/0gPz8/Pz8///ljRODn/8ofGf2un+fn5+fn5+fn57/6GTQ/Pz8/P7/+zjA2
Hr/6L35+/d3Iv9SvzW+p0t9l98dev/7u7Otvi/4uh19/V98fob/j39MPRrL+q7P1+7rsB63fV98fob+r5A/r953jD/7Lzv9bv0+/
xn9Hf/Cf8+4oPz8/Pz8/f3vX3/4R+Pm/8kdGv+vn+fn5+fn5+fn5r34Gzc/Pz89fwW8Ydx7jQ2fzOXH9Fz//ffu7+S36u62b0ll/
Vzrv70ryfq3o7870x7K/x/X7gr/o73b1d0V/d6Xf+n2t+PV3/F/5Qz94rT/W+4P/sE3p3h+Z/PHBr1/jD/0g/+Hv7vLz8/Pz8/O3
d/3tH4Gf/yt/ZPS7fp6fn5+fn5+fn//qZ9D8/Pz8Kf2GcecxPnQ2n1P+648mlw4m7Kf46/qDf7e/6O9u4dffnX396u/PK38Hd8p+
rfz94/TZ3zXrj2V/J/1d0Q9W8HfX35V8/Z31+yr6++nvStf9nX7wdH/o75r1R4v+4L/s/Qv9oH7wfH/wN+cPfv5VW8TPz8/Pz9+L
P5r1Bz//Rf7I6Hf9PD8/Pz8/Pz8/P/+2VwD8/Pz6O8Moe45f/Rd/ZX/w7/Z/0d+9Xr/vwn4tuz/9+n1fvT33pr8rrfd3C/6/f6IE
/V12f0Rv/d0Lv/6uCX9P/V2T/ljvj7z+SNrfFev3teCPJX/k8uvv6vhDf8e/xR/r/cF/Q3/cwP/ytsezTv0av36Q/9b+4Ofn5+fn
v5E/mvUHP/9F/sjod/05Pz8/Pz8/Pz8//7ZXAPz81fyGcecxPnTWnb5M1H/x6wc/+4v+buTX3+2d/zv80cT6fV+9vdV9f/ewJu3v
RvO0NX/ETdfvS9Sv6Qfb8evvmvBHivX7+ukHw/p9rfmt39egP0I/WMlv/b6T/MHPv31TPvojkz8++PVr/KEf5L+3P/j5+fn5+W/k
j2b9wc9/kT8y+l1/zs/Pz8/Pz8/Pz7/tFQB/Yr9h3HmMD511p/8W+peSvF/jP8cfKfz6uzH/u36tol9/V/R3X/v//ol66++K9fvO
vn61JF+/r8f+rujvKvu76++K/u4C/2hG9bV+X4T+jn+XX3/XqN/6fSf5Y70/+G/ojxv4X972eNas/+LX3/HzJ/YHPz8/Pz//jfzR
rD/4+S/yR0a/68/5+fn5+fn5+fn5t70CuLXfMO48xofOutNn+jX+lf7Y4i+1/Af1d9X9wV91/n/pr9cPfvX2yqv+7pVNf8e/ya+/
u+7621d+/V01v/7uQn986Q/r9x3mj7B+X5P+CP1gJb/+jv8Uv/X7TvIHP//2Tfnoj0z++ODXr/GHfpD/3v7g5+fn5+fnT+OPZv3B
z3+RPzL6XX/Oz8/Pz8/Pz8/Pv+0VwFd+w7jzGB86604/NddP8bfqjxR+/R3/EfP/S3/e/q5M301Z3d+VNvu7stSvleT9XUnfD6br
70q6/q6s7Qf1d5f5X/Z3afz6O/5D/WH9vip+/V1tf+gH6/pDf8e/xR/r/cF/Q3/c0z85YxT6wev8wd+cP/j59YP8/Pz8/Pz8l/mj
WX/w81/kj4x+15/z8/Pz8/Pz8/On8hvGncf40Fl3+ka/xl+ml1yuO9nXr//pkUe/dit/S/3dLv9Xp/fv0t+VNP1a6bO/62P9vrB+
XwN+/eBl/njRfzW5fl+s90ePfv3dcf7REdFXf6cfrObX3/F/5Q/9YLP+aNEf/PzbN+WjPzL544Nfv8Yf+kF+/sz+4Ofn5+fnv5E/
+CsN/nb8wX+93/Xz/Pz8/Pz8/Pw38xvGnUe864+y91/8+rtr/KFf4//OH7X8350e77K/K9Fdf1f0d3X80/7L+n2X+UN/14D/5fp9
Efo7/d2u/i6fPyZ+/WAVv/X7avv1d5X9ob9r1h/8x/uD/7L376zfpx883x/8/Af7g59fP8jPz8/Pz5/IH/yVBn87/uC/3u/6f35+
fn5+fn5+wzC2HL8H9F8leb/Gf4o/1vr1dwf4Y7c/+Ov7u+/v5rfo7/i7X7+v4f7ulT9e+0M/eOL1t/q7Bv036u/0g1f4Q39Xxd/R
+n1d9nf6Qf4P/tAPNuuPFv3Bz799Uz76I5M/Pvj1X/yhv+Pn52/p+h9+fn5+fv5+/cFfafC344+Mftf/8/Pz8/Pz8/MbhrHl+NWv
8Z/jj7V+/d0B/tjtD/4b+787Pdtdf1f++rWiv6vjj9DftekP/eB516+WDtfve9nfpfEn6tfu3g/q787wh/X7mvC/W79Pf1ffH/xn
+0N/16w/+I/3Bz//9k356J+csbN+34X+4Oc/2B/8/PyhH+Hn5+fn57/KH/yVBn87/sjo1y/w8/Pz8/PzX+43jDuP0K/x8685WfPG
P33k0X/xJ/LvP6fZc39XPvZ3pc3+qId+8O/gSOjX3/HvfDjQ3zXoD+v3XeWPL/36O/6n84Pjc4Md93fJ/Nbva9Af/Gf7o+P+Tj94
gj/4+bdvykd/ZPLHB7/+iz/0d/z8/PxnbhE/Pz8/P79+kP/L7eNvxh8Z/foLfn5+fn7+hH7DuPMI/Rc//5qTHW/800eeBP1XSe6f
7v/g/8K//5xgh/1d6aW/S+tPv35fLPWDEfo7/k8PB/q7PP4I/aB+cFe/ph+81K+/a86vv2vQH/xn+0M/2Kw/WvQHP3/P/tjnn5yx
s37fhf7g5z/YH/z8/PwHD35+fn5+/tf+4Offt338zfgjo18/ws/Pz89/S///AXlEug8=
"""


class SpotweaveZones(MultiRegionStrategy):
    """Hazards of the zones, and the value of slack that follows from them."""

    NAME = "spotweave_multi"

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
        up = env.get_all_regions_spot_available()
        usd_hour = [0.0 if usd is None else usd for usd in env.get_all_regions_spot_prices()]
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
        # The job is parked where it runs, or ran last: that is the zone that is billed.
        if choice == SPOT:
            env.switch_region(zone)
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
