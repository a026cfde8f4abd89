"""The rules of one tick, as the "Can't Be Late" leaderboards settle, guarantee and bill it.

Time goes in ticks of `tick_s` seconds. What runs in tick t is `NONE`, `SPOT` or `ON_DEMAND`; a whole tick is
billed. `rem_s` is restart overhead still to pay: work begins when it is 0. Everything is an integer number of
seconds, so nothing is rounded.

With g the tick, d the restart overhead and N the ticks until the deadline, at tick t:

1. Tick t - 1 is settled: remaining overhead is paid first, the rest is work.
2. Availability holds for the whole tick. A job on spot in a zone without it is interrupted and keeps its
   work.
3. The policy chooses. Moving from running spot to spot elsewhere has no overhead.
4. If ceil((work + d) / g) >= N - t, the guarantee chooses: spot if that ran last and its overhead is paid,
   else on demand. If that spot is lost, the tick is lost and the job ends late.
5. Choosing spot where there is none runs nothing.
6. A start sets the overhead to d (not adds). Ticks are billed whole, the last too.

Source: UCB-ADRS/ADRS-Leaderboard, problems cant_be_late and cant_be_late_multi, whose simulator is that of Wu
et al., "Can't Be Late" (NSDI'24).
"""

from __future__ import annotations

from numba import njit

NONE = 0
SPOT = 1
ON_DEMAND = 2


@njit(cache=True, error_model="numpy")
def settle(ran: int, rem_s: int, left_s: int, tick_s: int) -> tuple[int, int]:
    """(rem_s, left_s) after a tick in which `ran` ran (step 1)."""
    if ran == NONE:
        return rem_s, left_s
    work_s = max(0, tick_s - rem_s)
    return rem_s - (tick_s - work_s), left_s - min(work_s, left_s)


@njit(cache=True, error_model="numpy")
def is_guaranteed(left_s: int, ticks_left: int, tick_s: int, restart_s: int) -> bool:
    """Whether the guarantee decides (step 4): ceil((work + d) / g) >= N - t, with work left."""
    return left_s > 0 and -(-(left_s + restart_s) // tick_s) >= ticks_left


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
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
