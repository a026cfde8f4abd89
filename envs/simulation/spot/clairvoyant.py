"""The least cost of ending in time for one who knows the whole trace: the bound of every policy.

A dynamic programme over (tick, ticks without progress, restarts paid, what ran): with g the tick and d the
restart overhead, the work done after t ticks is t g minus g for each tick without progress minus d mod g for
each restart paid to its end (the tick that pays the part d mod g works for the rest of it): the state is
exact.
The guarantee applies to it as to everybody (see `ticks`). It is told that every start succeeds after the
restart overhead alone: where launches take time or fail, it is a bound that nobody need reach.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spotweave.envs.simulation.series import Bools, Floats
from spotweave.envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT, decide, settle
from spotweave.envs.simulation.world import WorldError


def clairvoyant_usd(
    has_spot: Bools,
    spot_usd_hour: Floats,
    on_demand_usd_hour: float,
    work_s: int,
    tick_s: int,
    restart_s: int,
) -> float:
    """Least cost of a job that ends within the trace, USD.

    Args:
        has_spot: (N, Z), N ticks until the deadline.
        spot_usd_hour: (N, Z).
        on_demand_usd_hour: the least of all zones.
        work_s: seconds of work.
        tick_s: g.
        restart_s: d >= 0.

    Raises:
        WorldError: if not even on demand ends in time.
    """
    n_ticks = len(has_spot)
    if work_s + restart_s > n_ticks * tick_s:
        raise WorldError(
            f"{work_s} s of work and {restart_s} s of restart do not fit into {n_ticks} ticks of {tick_s} s"
        )
    up = np.where(has_spot, spot_usd_hour, np.inf)
    later = np.zeros_like(has_spot)
    later[:-1] = has_spot[1:]
    anywhere = up.min(axis=1)  # the cheapest zone now: it may be interrupted at the end of the tick
    lasting = np.where(later, up, np.inf).min(axis=1)  # the cheapest one that is not
    # A spell of spot is worth at most one start, and so is each gap before, between and after them.
    spells = int(np.count_nonzero(np.diff(has_spot.any(axis=1).astype(np.int8), prepend=0) == 1))
    if has_spot.shape[1] > 1:
        spells = n_ticks
    lost_s = n_ticks * tick_s - work_s
    starts = 2 * spells + 1 if restart_s == 0 else min(2 * spells + 1, lost_s // restart_s + 1)
    cost = _least_usd(anywhere, lasting, on_demand_usd_hour, work_s, tick_s, restart_s, starts + 1)
    return float(cost)


@njit(cache=True, error_model="numpy")
def _least_usd(
    anywhere: Floats,
    lasting: Floats,
    on_demand_usd_hour: float,
    work_s: int,
    tick_s: int,
    restart_s: int,
    n_starts: int,
) -> float:
    n_ticks = len(anywhere)
    stages = restart_s // tick_s + 1  # ticks in which a restart is paid, the one that works too included
    part_s = restart_s % tick_s
    n_idle = (n_ticks * tick_s - work_s) // tick_s + 2
    # What ran: 0 nothing, 1..stages SPOT with so many ticks of overhead behind it, then ON_DEMAND likewise,
    # and last SPOT without overhead left that was interrupted.
    n_runs = 2 * stages + 2
    after = np.full((n_idle + 1, n_starts + 1, n_runs), np.inf)
    now = np.full_like(after, np.inf)
    hour = tick_s / 3600.0
    for t in range(n_ticks - 1, -1, -1):
        ticks_left = n_ticks - t
        spot_here = anywhere[t] < np.inf
        for idle in range(min(t, n_idle - 1) + 1):
            for paid in range(n_starts):
                lost_s = idle * tick_s + paid * part_s
                left_s = max(0, work_s - (t * tick_s - lost_s))
                if left_s > ticks_left * tick_s:
                    continue
                for code in range(n_runs):
                    if left_s == 0:
                        now[idle, paid, code] = 0.0
                        continue
                    interrupted = code == n_runs - 1
                    kind = SPOT if interrupted else (NONE if code == 0 else 1 + (code - 1) // stages)
                    stage = stages if interrupted else (0 if code == 0 else (code - 1) % stages + 1)
                    rem_s = 0 if kind == NONE else max(0, restart_s - stage * tick_s)
                    best = np.inf
                    for proposal in (NONE, SPOT, ON_DEMAND):
                        runs, rem_now_s = decide(
                            proposal,
                            kind,
                            interrupted,
                            spot_here,
                            rem_s,
                            left_s,
                            ticks_left,
                            tick_s,
                            restart_s,
                        )
                        if runs == NONE:
                            best = min(best, after[idle + 1, paid, 0])
                            continue
                        fresh = runs != kind or interrupted
                        reached = 1 if fresh else min(stages, stage + 1)
                        # A tick of overhead alone does no work; the one that pays the rest does.
                        lazy = rem_now_s >= tick_s
                        pays = not lazy and rem_now_s > 0
                        more_idle = idle + 1 if lazy else idle
                        more_paid = paid + 1 if pays else paid
                        left_after_s = settle(runs, rem_now_s, left_s, tick_s)[1]
                        if runs == ON_DEMAND:
                            rest = 0.0 if left_after_s == 0 else after[more_idle, more_paid, stages + reached]
                            best = min(best, on_demand_usd_hour * hour + rest)
                            continue
                        if left_after_s == 0:
                            best = min(best, anywhere[t] * hour)
                            continue
                        if lasting[t] < np.inf:
                            best = min(best, lasting[t] * hour + after[more_idle, more_paid, reached])
                        stopped = n_runs - 1 if reached * tick_s >= restart_s else 0
                        best = min(best, anywhere[t] * hour + after[more_idle, more_paid, stopped])
                    now[idle, paid, code] = best
        after, now = now, after
        now[:] = np.inf
    return float(after[0, 0, 0])
