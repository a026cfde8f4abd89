"""What plans of one job alone are made of, at given tolls for the room it takes: compiled, for `lagrangian`.

Times are integer seconds since the episode's start, amounts USD. A plan is a list of stays. A stay asks for
instances, waits for them, sets up, works, and ends; the job asks again. Every function takes the more
favourable side wherever it rounds; what that is stands at each of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

compiled = njit(error_model="numpy")
"""Not cached: numba would not notice that a function of another file changed."""

STEP_S = 300
"""Tables and the search over several stays know the time to this many seconds."""


class Steps(NamedTuple):
    """An episode's C offers in K steps of time, with at most P spells. Rates are USD per executor-second."""

    price: Floats  # (C, K) the least price within each step
    price_sum: Floats  # (C, K + 1) its integral
    toll: Floats  # (C, K)
    toll_sum: Floats  # (C, K + 1)
    spells: Ints  # (C,)
    spell_from: Ints  # (C, P) when it becomes available
    spell_to: Ints  # (C, P) when that ends


class Job(NamedTuple):
    """What a plan depends on, besides the steps."""

    arrival_s: int
    executors: int
    standard_s: int
    deadline_s: int  # of a job with one, else never
    miss_usd: float  # of the deadline, or of a late batch
    delay_usd_s: float
    batches: int
    period_s: int
    allowance_s: int
    parts: int  # levels of progress of a job without batches
    usable: Flags  # (C,) whether its executors fit the quota
    execution_s: Ints  # (C,)
    wall_s: Ints  # (C,) the same with its checkpoints, in one stay
    launch_s: Ints  # (C,) at least
    set_up_s: Ints  # (C,) at least
    egress_usd: Floats  # (C,) of one set-up
    free_first_s: Ints  # (C,) stays that the provider ends earlier cost no instances


@compiled
def take_room(room: Floats, c: int, executors: int, start_s: int, end_s: int) -> None:
    """Add executor-hours on offer c to `room` (C, H)."""
    for hour in range(max(0, start_s) // 3600, min(room.shape[1], (end_s - 1) // 3600 + 1)):
        inside = min(end_s, (hour + 1) * 3600) - max(start_s, hour * 3600)
        room[c, hour] += executors * max(0, inside) / 3600.0


@compiled
def least_ahead_s(job: Job) -> int:
    """The least time from asking for instances to work."""
    least = 1 << 60
    for c in range(len(job.usable)):
        if job.usable[c]:
            least = min(least, int(job.launch_s[c] + job.set_up_s[c]))
    return least


@compiled
def start_costs(steps: Steps, job: Job, first: int, last: int) -> tuple[Floats, Floats]:
    """(C, last + 1) what it costs to be set up by step k, and the same without the instances.

    At the least price and toll from when instances may be asked for until the end of step k.
    """
    n_offers = len(job.usable)
    paid = np.full((n_offers, last + 1), np.inf)
    free = np.full((n_offers, last + 1), np.inf)
    for c in range(n_offers):
        if not job.usable[c]:
            continue
        ahead = job.launch_s[c] + job.set_up_s[c]
        back = 1 + (ahead + STEP_S - 1) // STEP_S
        for k in range(first, last + 1):
            price, toll = np.inf, np.inf
            for near in range(max(0, k - back), min(k + 1, steps.price.shape[1])):
                price = min(price, steps.price[c, near])
                toll = min(toll, steps.toll[c, near])
            free[c, k] = job.egress_usd[c] + job.executors * toll * ahead
            paid[c, k] = free[c, k] + job.executors * price * job.set_up_s[c]
    return paid, free
