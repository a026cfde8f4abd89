"""The cheapest plan of one job without batches: a compiled part of `lagrangian` (see `job_plans`)."""

from __future__ import annotations

import numpy as np

from training.evaluation.job_plans import (
    STEP_S,
    Flags,
    Floats,
    Ints,
    Job,
    Steps,
    compiled,
    least_ahead_s,
    start_costs,
    take_room,
)


@compiled
def total_to(rates: Floats, sums: Floats, t: int) -> float:
    """The integral of one offer's rate up to `t`; after the last step nothing is added."""
    k = t // STEP_S
    if k >= len(rates):
        return float(sums[len(rates)])
    return float(sums[k] + rates[k] * (t - k * STEP_S))


@compiled
def workable(steps: Steps, job: Job, last: int) -> Flags:
    """(C, last) whether a stay could work at some moment of the step: set up, and its spell not over."""
    able = np.zeros((len(job.usable), last), np.bool_)
    for c in range(len(job.usable)):
        if not job.usable[c]:
            continue
        for p in range(steps.spells[c]):
            begin = steps.spell_from[c, p] + job.launch_s[c] + job.set_up_s[c]
            if begin < steps.spell_to[c, p]:
                able[c, begin // STEP_S : (steps.spell_to[c, p] + STEP_S - 1) // STEP_S] = True
    return able


@compiled
def one_stay_usd(steps: Steps, job: Job, c: int, start_s: int) -> float:
    """What a job costs that asks for instances on offer c now and keeps them to its end."""
    billed = start_s + job.launch_s[c]
    end = billed + job.set_up_s[c] + job.wall_s[c]
    money = total_to(steps.price[c], steps.price_sum[c], end)
    money -= total_to(steps.price[c], steps.price_sum[c], billed)
    toll = total_to(steps.toll[c], steps.toll_sum[c], end)
    toll -= total_to(steps.toll[c], steps.toll_sum[c], start_s)
    return float(job.egress_usd[c] + job.executors * (money + toll) + end_usd(job, job.deadline_s, end))


@compiled
def end_usd(job: Job, deadline_s: int, end_s: int) -> float:
    """Delay and deadline of a job without batches that ends then."""
    delay = job.delay_usd_s * (end_s - job.arrival_s - job.standard_s)
    return delay + (job.miss_usd if end_s > deadline_s else 0.0)


@compiled
def best_single_stay(steps: Steps, job: Job) -> tuple[float, int, int]:
    """(USD, offer, start) of the cheapest plan with one stay, exact for the tables' prices.

    Between two moments at which the start, the first billed second or the end passes into another step, a
    spell or the deadline, the cost is linear in the start, so only such moments are tried.
    """
    best, best_c, best_start = np.inf, -1, 0
    tried = np.empty(6, np.int64)
    for c in range(len(job.usable)):
        if not job.usable[c]:
            continue
        launch, length = job.launch_s[c], job.launch_s[c] + job.set_up_s[c] + job.wall_s[c]
        for p in range(steps.spells[c]):
            low, high = max(job.arrival_s, steps.spell_from[c, p]), steps.spell_to[c, p] - length
            if low > high:
                continue
            for k in range(low // STEP_S, high // STEP_S + 1):
                t = k * STEP_S
                if end_usd(job, job.deadline_s, max(t, low) + length) >= best:
                    break
                tried[0], tried[1] = t, t + (-(t + launch)) % STEP_S
                tried[2] = t + (-(t + length)) % STEP_S
                tried[3], tried[4], tried[5] = low, high, job.deadline_s - length
                for start in tried:
                    if low <= start <= high:
                        usd = one_stay_usd(steps, job, c, int(start))
                        if usd < best:
                            best, best_c, best_start = usd, c, int(start)
    return best, best_c, best_start


@compiled
def plan_one_shot(steps: Steps, job: Job, room: Floats) -> float:
    """The least that a job without batches can cost; the room of a plan of that cost is added to `room`.

    One stay is exact. For several, all moments lie on the grid of steps: at fixed offers and steps the cost
    is linear in the moments, and the only condition that ties them to anything off the grid is that the work
    is done. So one of the grid's plans is as cheap and lacks at most one step's work. Spells are widened to
    whole steps, and between two stays only whole steps pass.
    """
    single, single_c, single_start = best_single_stay(steps, job)
    n_offers, last = len(job.usable), steps.price.shape[1]
    first = job.arrival_s // STEP_S
    k = first
    late_s = (job.deadline_s + STEP_S - 1) // STEP_S * STEP_S
    while k < last and end_usd(job, late_s, k * STEP_S) < single:
        k += 1
    last = k  # plans that end later cost more than one stay
    if last <= first:
        take_single(job, single_c, single_start, room)
        return single
    gain = np.zeros(n_offers, np.int64)
    for c in range(n_offers):
        if job.usable[c]:
            gain[c] = int(np.ceil(job.parts * STEP_S / job.execution_s[c] - 1e-9))
    goal = max(0, job.parts - gain.max())
    paid, free = start_costs(steps, job, first, last)
    second = paid.min()  # the last of several stays is paid for
    able = workable(steps, job, last)
    pause = least_ahead_s(job) // STEP_S
    value, choice, goes_on = search_stays(
        steps, job, late_s, able, first, last, gain, goal, paid, free, second
    )
    # After the first stay: what is still to pay for another, by the step of its end and the level reached.
    again = np.empty((last - first + 1, goal + 1))
    for k in range(last - first + 1):
        again[k, :goal] = value[min(k + pause, last - first), :goal]
        again[k, goal] = second + end_usd(job, late_s, (first + k + pause) * STEP_S)

    best, best_c, best_from, best_to, best_level = single, -1, 0, 0, 0
    for c in range(n_offers):
        if not job.usable[c]:
            continue
        earliest = (job.arrival_s + job.launch_s[c] + job.set_up_s[c]) // STEP_S
        for j in range(earliest, last):
            if not (able[c, j] or (j > 0 and able[c, j - 1])):
                continue
            for end in range(j, last + 1):
                if end > j and not able[c, end - 1]:
                    break
                level = (end - j) * gain[c]
                usd = paid[c, j] + job.executors * (
                    steps.price_sum[c, end]
                    - steps.price_sum[c, j]
                    + steps.toll_sum[c, end]
                    - steps.toll_sum[c, j]
                )
                if usd + end_usd(job, late_s, end * STEP_S) >= best:
                    break
                usd += again[end - first, min(level, goal)]
                if usd < best:
                    best, best_c, best_from, best_to, best_level = usd, c, j, end, min(level, goal)
                if level >= goal:
                    break
            for p in range(steps.spells[c]):
                if not ends_free(steps, job, c, p, j):
                    continue
                end = (steps.spell_to[c, p] + STEP_S - 1) // STEP_S
                if end > last:
                    continue
                level = min(goal, (end - j) * gain[c])
                usd = free[c, j] + job.executors * (steps.toll_sum[c, end] - steps.toll_sum[c, j])
                usd += again[end - first, min(level, goal)]
                if usd < best:
                    best, best_c, best_from, best_to, best_level = usd, c, j, end, level
    if best_c < 0:
        take_single(job, single_c, single_start, room)
        return best
    take_stay(job, best_c, best_from, best_to, room)
    trace_stays(steps, job, first, best_to, best_level, gain, goal, choice, goes_on, room)
    return best


@compiled
def ends_free(steps: Steps, job: Job, c: int, p: int, k: int) -> bool:
    """Whether a stay that works from about step k until the provider ends spell p may cost no instances."""
    begin = steps.spell_from[c, p] + job.launch_s[c] + job.set_up_s[c]
    if job.free_first_s[c] == 0 or begin >= min(steps.spell_to[c, p], (k + 1) * STEP_S):
        return False
    left = steps.spell_to[c, p] - k * STEP_S
    return bool(0 < left <= job.free_first_s[c] - job.set_up_s[c] + STEP_S)


@compiled
def search_stays(
    steps: Steps,
    job: Job,
    late_s: int,
    able: Flags,
    first: int,
    last: int,
    gain: Ints,
    goal: int,
    paid: Floats,
    free: Floats,
    second: float,
) -> tuple[Floats, Ints, Flags]:
    """What is still to pay by step and level of progress, for a job that is nowhere; by dynamic programming.

    Returns:
        (last - first + 1, goal + 1) USD; the choice in each such state (-1: wait; c: a stay on offer c;
        C + c * P + p: one that ends free of charge with spell p); (.., C, goal) whether a stay goes on then.
    """
    n_offers, n_spells, span = len(job.usable), steps.spell_from.shape[1], last - first
    value = np.full((span + 1, goal + 1), np.inf)
    choice = np.full((span + 1, goal + 1), -1, np.int64)
    goes_on = np.zeros((span, n_offers, goal), np.bool_)
    running = np.full((n_offers, goal + 1), np.inf)
    pause = least_ahead_s(job) // STEP_S
    for k in range(span + 1):
        value[k, goal] = end_usd(job, late_s, (first + k) * STEP_S)
    value[span, goal] = np.inf
    for back in range(span):
        k = span - 1 - back
        step = first + k
        for n in range(goal):
            value[k, n] = value[k + 1, n]
        for c in range(n_offers):
            if not job.usable[c] or not able[c, step]:
                running[c, :goal] = np.inf
                continue
            bill = job.executors * (steps.price[c, step] + steps.toll[c, step]) * STEP_S
            begin = paid[c, step]
            for n in range(goal):
                to = min(goal, n + gain[c])
                rest = value[k + 1, to] if to == goal else value[min(span, k + 1 + pause), to]
                if to < goal and running[c, to] < rest:
                    rest = running[c, to]
                    goes_on[k, c, n] = True
                running[c, n] = bill + rest
                if begin + bill + rest < value[k, n]:
                    value[k, n] = begin + bill + rest
                    choice[k, n] = c
            if job.free_first_s[c] == 0:
                continue
            for p in range(steps.spells[c]):
                if not ends_free(steps, job, c, p, step):
                    continue
                end = (steps.spell_to[c, p] + STEP_S - 1) // STEP_S
                if end > last:
                    continue
                toll = free[c, step] + job.executors * (steps.toll_sum[c, end] - steps.toll_sum[c, step])
                for n in range(goal):
                    to = min(goal, n + (end - step) * gain[c])
                    usd = toll + second + value[end - first, goal]
                    if to < goal:
                        usd = toll + value[min(span, end - first + pause), to]
                    if usd < value[k, n]:
                        value[k, n] = usd
                        choice[k, n] = n_offers + c * n_spells + p
    return value, choice, goes_on


@compiled
def take_single(job: Job, c: int, start_s: int, room: Floats) -> None:
    """The room of a plan of one stay, if there is one."""
    if c >= 0:
        length = job.launch_s[c] + job.set_up_s[c] + job.wall_s[c]
        take_room(room, c, job.executors, start_s, start_s + length)


@compiled
def take_stay(job: Job, c: int, step: int, end: int, room: Floats) -> None:
    """The room of one of several stays, which works from `step` to `end`."""
    ahead = job.launch_s[c] + job.set_up_s[c]
    take_room(room, c, job.executors, step * STEP_S - ahead, end * STEP_S)


@compiled
def trace_stays(
    steps: Steps,
    job: Job,
    first: int,
    step: int,
    level: int,
    gain: Ints,
    goal: int,
    choice: Ints,
    goes_on: Flags,
    room: Floats,
) -> None:
    """The room of the stays that `search_stays` chose from a state on."""
    n_offers, n_spells = len(job.usable), steps.spell_from.shape[1]
    pause = least_ahead_s(job) // STEP_S
    k = step - first + pause
    while level < goal and k < len(goes_on):
        chosen = choice[k, level]
        if chosen < 0:
            k += 1
        elif chosen < n_offers:
            begun, on = k, True
            while on:
                on = goes_on[k, chosen, level]
                level = min(goal, level + gain[chosen])
                k += 1
            take_stay(job, chosen, first + begun, first + k, room)
            k += pause
        else:
            c, p = (chosen - n_offers) // n_spells, (chosen - n_offers) % n_spells
            end = (steps.spell_to[c, p] + STEP_S - 1) // STEP_S
            take_stay(job, c, first + k, end, room)
            level = min(goal, level + (end - first - k) * gain[c])
            k = end - first + pause
