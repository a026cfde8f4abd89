"""The cheapest plan of one job with batches: a compiled part of `lagrangian` (see `job_plans`).

A stream holds its place until the provider reclaims it, the last batch ends, or it moves, which it may as any
batch ends but in the step in which it began to work there; it may then be nowhere for a while, since a launch
may fail. Progress is counted in parts of a batch, and what is done by a step's end is rounded up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from training.evaluation.job_plans import (
    STEP_S,
    Floats,
    Ints,
    Job,
    Steps,
    compiled,
    least_ahead_s,
    start_costs,
    take_room,
)

AFTER_S = 12 * 3600
"""A plan is followed this long after the last deadline; what is open then ends at that moment for nothing."""


class Search(NamedTuple):
    """The search for a stream's plan: S steps from the job's arrival, M parts of work."""

    first: int  # the step of the arrival
    fastest_s: int  # least time of a batch
    ahead_s: int  # least time from asking for instances to work
    paid: Floats  # (C, ..) see `start_costs`
    free: Floats  # likewise
    ends: Floats  # (S + 1, B + 1) see `batch_usd`
    value: Floats  # (S + 1, M + 1) what is still to pay by a stream that is nowhere
    choice: Ints  # (S + 1, M + 1) -1: wait; else the stay that begins to work in the step, see `begin_stays`
    running: (
        Floats  # (C, M + 1) what is still to pay by one that runs as the step begins that was looked at last
    )
    leaves: Ints  # (S + 1, C, M + 1) after which batch one moves that runs as the step begins; 0: it stays


@compiled
def batch_usd(job: Job, first: int, last: int, fastest_s: int) -> Floats:
    """(last - first + 1, B + 1) delay and deadlines of the first n batches if they end in each step.

    A batch ends when the step begins, or as soon as the fastest offer can end it, if that is later.
    """
    usd = np.zeros((last - first + 1, job.batches + 1))
    for k in range(last - first + 1):
        for n in range(1, job.batches + 1):
            due = job.arrival_s + n * job.period_s
            end = max((first + k) * STEP_S, due + fastest_s)
            delay = job.delay_usd_s * (end - due - job.standard_s) / job.batches
            usd[k, n] = usd[k, n - 1] + delay + (job.miss_usd if end > due + job.allowance_s else 0.0)
    return usd


@compiled
def reach(job: Job, fastest_s: int, step: int) -> int:
    """The most parts done by the end of a step: batches that can have ended, and most of one more."""
    end = (step + 1) * STEP_S - job.arrival_s
    ended = min(job.batches, max(0, end - fastest_s) // job.period_s)
    due = min(job.batches, end // job.period_s)
    return ended * job.parts + (job.parts - 1 if due > ended else 0)


@compiled
def parts_in(job: Job, seconds: int, execution_s: int) -> int:
    """The most parts that `seconds` of work can finish."""
    return (job.parts * max(0, seconds) + execution_s - 1) // execution_s


@compiled
def parts_in_last(job: Job, search: Search, c: int, step: int, from_s: int, stops_s: int) -> tuple[int, int]:
    """(parts, step) where the provider ends a stay: what the step may finish, and when work may go on.

    What is left of the step once the next instances could work counts at the fastest offer's speed; who works
    in it counts as beginning in the next step.
    """
    next_s = stops_s + search.ahead_s
    left = (step + 1) * STEP_S - next_s
    parts = parts_in(job, stops_s - from_s, job.execution_s[c]) + parts_in(job, left, search.fastest_s)
    return parts, max(step + 1, next_s // STEP_S)


@compiled
def plan_stream(steps: Steps, job: Job, room: Floats) -> float:
    """The least that a job with batches can cost; the room of a plan of that cost is added to `room`.

    By dynamic programming over steps. In the step in which a stay begins to work it pays for its set-up, and
    for all but one of the parts that it finishes.
    """
    n_offers, first = len(job.usable), job.arrival_s // STEP_S
    end_s = job.arrival_s + job.batches * job.period_s + job.allowance_s + AFTER_S
    last = min(steps.price.shape[1], end_s // STEP_S + 1)
    span, whole = last - first, job.batches * job.parts
    fastest = 1 << 60
    for c in range(n_offers):
        if job.usable[c]:
            fastest = min(fastest, int(job.execution_s[c]))
    paid, free = start_costs(steps, job, first, last)
    ends = batch_usd(job, first, last, fastest)
    value = np.zeros((span + 1, whole + 1))
    choice = np.full((span + 1, whole + 1), -1, np.int64)
    running = np.zeros((n_offers, whole + 1))
    for m in range(whole):
        value[span, m] = ends[span, job.batches] - ends[span, m // job.parts]
        running[:, m] = value[span, m]
    leaves = np.zeros((span + 1, n_offers, whole + 1), np.int64)
    search = Search(first, fastest, least_ahead_s(job), paid, free, ends, value, choice, running, leaves)
    spell = steps.spells.copy()  # of each offer, the first that ends after the step begins
    for back in range(span):
        k = span - 1 - back
        t = (first + k) * STEP_S
        value[k] = value[k + 1]
        for c in range(n_offers):
            if not job.usable[c]:
                continue
            while spell[c] > 0 and steps.spell_to[c, spell[c] - 1] > t:
                spell[c] -= 1
            p = spell[c]
            while p < steps.spells[c] and steps.spell_from[c, p] < t + STEP_S:
                begin_stays(steps, job, search, c, p, k)
                p += 1
            if spell[c] < steps.spells[c] and steps.spell_from[c, spell[c]] <= t:
                go_on(steps, job, search, c, steps.spell_to[c, spell[c]], k)
            else:
                running[c, :whole] = np.inf
        move(steps, job, search, k)
    trace_stream(steps, job, search, room)
    return float(value[0, 0])


@compiled
def go_on(steps: Steps, job: Job, search: Search, c: int, stops_s: int, k: int) -> None:
    """What is still to pay by a stream that runs on offer c as step k begins, until its spell ends."""
    step, whole, span = search.first + k, job.batches * job.parts, len(search.value) - 1
    t, top = step * STEP_S, reach(job, search.fastest_s, step)
    rate = job.executors * (steps.price[c, step] + steps.toll[c, step])
    stops, held, after = stops_s <= t + STEP_S, STEP_S, k + 1
    gain = parts_in(job, STEP_S, job.execution_s[c])
    if stops:
        gain, again = parts_in_last(job, search, c, step, t, stops_s)
        held, after = stops_s - t, min(span, again - search.first)
    end = max(t, job.arrival_s + job.batches * job.period_s + search.fastest_s)
    for m in range(whole):
        to = max(m, min(top, m + gain))
        usd = search.ends[k, to // job.parts] - search.ends[k, m // job.parts]
        if to == whole:
            search.running[c, m] = usd + rate * min(held, end - t)
        else:
            rest = search.value[after, to] if stops else search.running[c, to]
            search.running[c, m] = usd + rate * held + rest


@compiled
def move(steps: Steps, job: Job, search: Search, k: int) -> None:
    """Streams that run as step k begins may leave their place when a batch ends in it.

    They pay for all but one of the parts that they finish in the step.
    """
    step, elsewhere = search.first + k, search.value[after_move(search, k)]
    top = reach(job, search.fastest_s, step)
    for c in range(len(job.usable)):
        gain = parts_in(job, STEP_S, job.execution_s[c])
        rate = job.executors * (steps.price[c, step] + steps.toll[c, step])
        part_usd = rate * job.execution_s[c] / job.parts
        for m in range(job.batches * job.parts):
            if search.running[c, m] == np.inf:
                continue
            before = m // job.parts
            for n in range(max(1, before), min(job.batches - 1, max(m, min(top, m + gain)) // job.parts) + 1):
                if n * job.parts < m:
                    continue
                usd = search.ends[k, n] - search.ends[k, before]
                usd += part_usd * max(0, n * job.parts - m - 1) + elsewhere[n * job.parts]
                if usd < search.running[c, m]:
                    search.running[c, m] = usd
                    search.leaves[k, c, m] = n


@compiled
def after_move(search: Search, k: int) -> int:
    """The first step in which a stream may work again that leaves its place as step k begins."""
    return min(len(search.value) - 1, k + search.ahead_s // STEP_S)


@compiled
def begin_stays(steps: Steps, job: Job, search: Search, c: int, p: int, k: int) -> None:
    """Try stays that begin to work in step k on offer c in its spell p, from every state of progress.

    `choice` is 2 (C * P * (parts finished in the step) + c * P + p), and one more if the provider's end
    refunds the stay.
    """
    step, whole, span = search.first + k, job.batches * job.parts, len(search.value) - 1
    t, n_spells = step * STEP_S, steps.spell_from.shape[1]
    asked_s = max(job.arrival_s, steps.spell_from[c, p])
    works_s = max(t, asked_s + job.launch_s[c] + job.set_up_s[c])
    stops_s = steps.spell_to[c, p]
    if works_s >= t + STEP_S or works_s >= stops_s:
        return
    top, number = reach(job, search.fastest_s, step), c * n_spells + p
    per_gain = len(job.usable) * n_spells
    inside = stops_s <= t + STEP_S  # it ends within the step, too
    left = stops_s - t
    refunded = job.free_first_s[c] > 0 and left <= job.free_first_s[c] - job.set_up_s[c] + STEP_S
    gain, after = parts_in(job, t + STEP_S - works_s, job.execution_s[c]), k + 1
    if inside:
        gain, again = parts_in_last(job, search, c, step, works_s, stops_s)
        after = min(span, again - search.first)
    part_usd = job.executors * (steps.price[c, step] + steps.toll[c, step]) * job.execution_s[c] / job.parts
    begin = search.free[c, step] if inside and refunded else search.paid[c, step]
    for m in range(whole):
        to = max(m, min(top, m + gain))
        for reached in range(m, to + 1):
            usd = begin + search.ends[k, reached // job.parts] - search.ends[k, m // job.parts]
            if not inside:
                usd += part_usd * max(0, reached - m - 1)
            if reached < whole:
                usd += search.value[after, reached] if inside else search.running[c, reached]
            if usd < search.value[k, m]:
                search.value[k, m] = usd
                search.choice[k, m] = 2 * (per_gain * (reached - m) + number)
    final = (stops_s - 1) // STEP_S - search.first  # the step in which it ends
    if inside or not refunded or final >= span:
        return
    toll = search.free[c, step] + job.executors * (
        steps.toll_sum[c, search.first + final] - steps.toll_sum[c, step + 1]
    )
    toll += job.executors * steps.toll[c, search.first + final] * (stops_s - (search.first + final) * STEP_S)
    gains, tops, after = refunded_steps(job, search, c, works_s, stops_s, k)
    for m in range(whole):
        usd, to = toll, m
        for later in range(len(gains)):
            old, to = to, max(to, min(tops[later], to + gains[later]))
            if to > old:
                usd += search.ends[k + later, to // job.parts] - search.ends[k + later, old // job.parts]
        if usd + search.value[after, to] < search.value[k, m]:
            search.value[k, m] = usd + search.value[after, to]
            search.choice[k, m] = 2 * number + 1


@compiled
def refunded_steps(
    job: Job, search: Search, c: int, works_s: int, stops_s: int, k: int
) -> tuple[Ints, Ints, int]:
    """(parts, most parts in all, step after) of a stay that the provider ends within its first hour.

    It does not end the job: who finishes pays.
    """
    final, span = (stops_s - 1) // STEP_S - search.first, len(search.value) - 1
    gains, tops = np.empty(final + 1 - k, np.int64), np.empty(final + 1 - k, np.int64)
    for later in range(k, final + 1):
        step = search.first + later
        seconds = (step + 1) * STEP_S - max(works_s, step * STEP_S)
        gains[later - k] = parts_in(job, seconds, job.execution_s[c])
        tops[later - k] = min(reach(job, search.fastest_s, step), job.batches * job.parts - 1)
    begin = max(works_s, (search.first + final) * STEP_S)
    gains[-1], again = parts_in_last(job, search, c, search.first + final, begin, stops_s)
    return gains, tops, min(span, again - search.first)


@compiled
def trace_stream(steps: Steps, job: Job, search: Search, room: Floats) -> None:
    """The room of the stays that were chosen, from the job's arrival on."""
    n_spells, per_gain = steps.spell_from.shape[1], len(job.usable) * steps.spell_from.shape[1]
    whole, span = job.batches * job.parts, len(search.value) - 1
    k, m = 0, 0
    while k < span and m < whole:
        chosen = search.choice[k, m]
        if chosen < 0:
            k += 1
            continue
        gain, number = chosen // 2 // per_gain, chosen // 2 % per_gain
        c, stops_s = number // n_spells, steps.spell_to[number // n_spells, number % n_spells]
        start = (search.first + k + 1) * STEP_S
        ahead = job.launch_s[c] + job.set_up_s[c]
        if chosen % 2 == 1:
            works_s = max(
                (search.first + k) * STEP_S,
                max(job.arrival_s, steps.spell_from[c, number % n_spells]) + ahead,
            )
            gains, tops, k = refunded_steps(job, search, c, works_s, stops_s, k)
            for later in range(len(gains)):
                m = max(m, min(tops[later], m + gains[later]))
            take_room(room, c, job.executors, start - ahead, max(start, stops_s))
            continue
        m += gain
        k += 1
        end_s = min(start, stops_s)
        while end_s < stops_s and k < span and m < whole:
            if search.leaves[k, c, m] > 0:
                m, k = search.leaves[k, c, m] * job.parts, after_move(search, k)
                break
            step = search.first + k
            gain, again = parts_in(job, STEP_S, job.execution_s[c]), step + 1
            if stops_s <= (step + 1) * STEP_S:
                gain, again = parts_in_last(job, search, c, step, step * STEP_S, stops_s)
            m = max(m, min(reach(job, search.fastest_s, step), m + gain))
            end_s, k = min(stops_s, (step + 1) * STEP_S), again - search.first
        take_room(room, c, job.executors, start - ahead, max(start, end_s))
