"""Local queues and the time wheel of one lane: where jobs wait for executors, and for their next event.

Every job has at most one pending event or one waiting execution, so both are linked lists over the same
column `LINK`: a slot of the wheel holds the jobs with an event in that slice, a local queue the jobs
that wait on that cluster. A queue is looked at only when something changed that may let an execution start.
"""

from __future__ import annotations

from numba import njit

from envs.simulation.slices import columns as at
from envs.simulation.slices.state import (
    NOBODY,
    Lanes,
    Rules,
    Tables,
)

# Plain integers for the compiled code below.


@njit(cache=True, error_model="numpy")
def request_now(lanes: Lanes, tables: Tables, i: int, j: int) -> int:
    """Executors that the current execution of a deployed job asks for."""
    s = lanes.slot[i]
    c = lanes.job[i, j, at.CLUSTER]
    if tables.uses_peak[s, j, lanes.job[i, j, at.DONE]]:
        return int(tables.pair[s, j, c, at.PEAK_REQUEST])
    return int(tables.pair[s, j, c, at.REQUEST])


@njit(cache=True, error_model="numpy")
def plan(lanes: Lanes, i: int, j: int, time: int) -> None:
    """Put job j's one pending event on the wheel."""
    slot = time % lanes.wheel.shape[1]
    lanes.job[i, j, at.LINK] = lanes.wheel[i, slot]
    lanes.wheel[i, slot] = j


@njit(cache=True, error_model="numpy")
def take_due(lanes: Lanes, i: int) -> int:
    """Move the jobs with an event in this slice to `due`, by arrival; how many."""
    slot = lanes.lane[i, at.TIME] % lanes.wheel.shape[1]
    due = lanes.due
    n = 0
    j = lanes.wheel[i, slot]
    lanes.wheel[i, slot] = NOBODY
    while j != NOBODY:
        k = n
        while k > 0 and due[i, k - 1] > j:
            due[i, k] = due[i, k - 1]
            k -= 1
        due[i, k] = j
        n += 1
        j = lanes.job[i, j, at.LINK]
    return n


@njit(cache=True, error_model="numpy")
def enqueue(lanes: Lanes, tables: Tables, i: int, j: int) -> None:
    """Request job j's current execution now: join the local queue."""
    job = lanes.job[i, j]
    cluster = lanes.cluster[i, job[at.CLUSTER]]
    job[at.PHASE] = at.QUEUED
    job[at.REQUESTED_AT] = lanes.lane[i, at.TIME]
    job[at.LINK] = NOBODY
    if cluster[at.HEAD] == NOBODY:
        cluster[at.HEAD] = j
    else:
        lanes.job[i, cluster[at.TAIL], at.LINK] = j
    cluster[at.TAIL] = j
    cluster[at.HALTED] += request_now(lanes, tables, i, j)
    cluster[at.DIRTY] = 1


@njit(cache=True, error_model="numpy")
def start_execution(lanes: Lanes, tables: Tables, rules: Rules, i: int, j: int) -> None:
    """Job j's current execution begins to run now."""
    time = lanes.lane[i, at.TIME]
    job = lanes.job[i, j]
    job[at.PHASE] = at.RUNNING
    job[at.STARTED_AT] = time
    job[at.WAITED] = 1 if time > job[at.REQUESTED_AT] else 0
    if job[at.DONE] == 0:
        job[at.INITIAL_WAIT] = job[at.WAITED]
    if rules.record:
        lanes.starts[i, j, job[at.DONE]] = time
    plan(lanes, i, j, time + tables.pair[lanes.slot[i], j, job[at.CLUSTER], at.EXECUTION])


@njit(cache=True, error_model="numpy")
def schedule(lanes: Lanes, tables: Tables, rules: Rules, i: int, c: int) -> None:
    """Step 6 of a slice on one cluster."""
    cluster = lanes.cluster[i, c]
    cluster[at.DIRTY] = 0
    free = rules.normal[c] + cluster[at.EXTENSION] - cluster[at.USED]
    before = NOBODY
    j = cluster[at.HEAD]
    while j != NOBODY:
        after = lanes.job[i, j, at.LINK]
        request = request_now(lanes, tables, i, j)
        if request <= free:
            free -= request
            cluster[at.USED] += request
            cluster[at.HALTED] -= request
            if before == NOBODY:
                cluster[at.HEAD] = after
            else:
                lanes.job[i, before, at.LINK] = after
            if after == NOBODY:
                cluster[at.TAIL] = before
            start_execution(lanes, tables, rules, i, j)
        elif rules.strict_fifo:
            break
        else:
            before = j
        j = after
