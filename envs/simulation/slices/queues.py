"""Local queues and the time wheel of one lane: where jobs wait for executors, and for their next event.

Every job has at most one pending event or one waiting execution, so both are linked lists over the same
column `JobState.LINK`: a slot of the wheel holds the jobs with an event in that slice, a local queue the jobs
that wait on that cluster. A queue is looked at only when something changed that may let an execution start.
"""

from __future__ import annotations

from numba import njit

from envs.simulation.slices.state import (
    NOBODY,
    ClusterState,
    JobState,
    Lanes,
    LaneState,
    PairData,
    Phase,
    Rules,
    Tables,
)

# Plain integers for the compiled code below.
_REQUEST = int(PairData.REQUEST)
_PEAK_REQUEST = int(PairData.PEAK_REQUEST)
_EXECUTION = int(PairData.EXECUTION)
_L_TIME = int(LaneState.TIME)
_C_USED = int(ClusterState.USED)
_C_HALTED = int(ClusterState.HALTED)
_C_EXTENSION = int(ClusterState.EXTENSION)
_C_HEAD = int(ClusterState.HEAD)
_C_TAIL = int(ClusterState.TAIL)
_C_DIRTY = int(ClusterState.DIRTY)
_J_PHASE = int(JobState.PHASE)
_J_CLUSTER = int(JobState.CLUSTER)
_J_REQUESTED_AT = int(JobState.REQUESTED_AT)
_J_WAITED = int(JobState.WAITED)
_J_INITIAL_WAIT = int(JobState.INITIAL_WAIT)
_J_DONE = int(JobState.DONE)
_J_LINK = int(JobState.LINK)
_QUEUED = int(Phase.QUEUED)
_RUNNING = int(Phase.RUNNING)


@njit(cache=True, error_model="numpy")
def request_now(lanes: Lanes, tables: Tables, i: int, j: int) -> int:
    """Executors that the current execution of a deployed job asks for."""
    s = lanes.slot[i]
    c = lanes.job[i, j, _J_CLUSTER]
    if tables.uses_peak[s, j, lanes.job[i, j, _J_DONE]]:
        return int(tables.pair[s, j, c, _PEAK_REQUEST])
    return int(tables.pair[s, j, c, _REQUEST])


@njit(cache=True, error_model="numpy")
def plan(lanes: Lanes, i: int, j: int, time: int) -> None:
    """Put job j's one pending event on the wheel."""
    slot = time % lanes.wheel.shape[1]
    lanes.job[i, j, _J_LINK] = lanes.wheel[i, slot]
    lanes.wheel[i, slot] = j


@njit(cache=True, error_model="numpy")
def take_due(lanes: Lanes, i: int) -> int:
    """Move the jobs with an event in this slice to `due`, by arrival; how many."""
    slot = lanes.lane[i, _L_TIME] % lanes.wheel.shape[1]
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
        j = lanes.job[i, j, _J_LINK]
    return n


@njit(cache=True, error_model="numpy")
def enqueue(lanes: Lanes, tables: Tables, i: int, j: int) -> None:
    """Request job j's current execution now: join the local queue."""
    job = lanes.job[i, j]
    cluster = lanes.cluster[i, job[_J_CLUSTER]]
    job[_J_PHASE] = _QUEUED
    job[_J_REQUESTED_AT] = lanes.lane[i, _L_TIME]
    job[_J_LINK] = NOBODY
    if cluster[_C_HEAD] == NOBODY:
        cluster[_C_HEAD] = j
    else:
        lanes.job[i, cluster[_C_TAIL], _J_LINK] = j
    cluster[_C_TAIL] = j
    cluster[_C_HALTED] += request_now(lanes, tables, i, j)
    cluster[_C_DIRTY] = 1


@njit(cache=True, error_model="numpy")
def start_execution(lanes: Lanes, tables: Tables, rules: Rules, i: int, j: int) -> None:
    """Job j's current execution begins to run now."""
    time = lanes.lane[i, _L_TIME]
    job = lanes.job[i, j]
    job[_J_PHASE] = _RUNNING
    job[_J_WAITED] = 1 if time > job[_J_REQUESTED_AT] else 0
    if job[_J_DONE] == 0:
        job[_J_INITIAL_WAIT] = job[_J_WAITED]
    if rules.record:
        lanes.starts[i, j, job[_J_DONE]] = time
    plan(lanes, i, j, time + tables.pair[lanes.slot[i], j, job[_J_CLUSTER], _EXECUTION])


@njit(cache=True, error_model="numpy")
def schedule(lanes: Lanes, tables: Tables, rules: Rules, i: int, c: int) -> None:
    """Step 6 of a slice on one cluster."""
    cluster = lanes.cluster[i, c]
    cluster[_C_DIRTY] = 0
    free = rules.normal[c] + cluster[_C_EXTENSION] - cluster[_C_USED]
    before = NOBODY
    j = cluster[_C_HEAD]
    while j != NOBODY:
        after = lanes.job[i, j, _J_LINK]
        request = request_now(lanes, tables, i, j)
        if request <= free:
            free -= request
            cluster[_C_USED] += request
            cluster[_C_HALTED] -= request
            if before == NOBODY:
                cluster[_C_HEAD] = after
            else:
                lanes.job[i, before, _J_LINK] = after
            if after == NOBODY:
                cluster[_C_TAIL] = before
            start_execution(lanes, tables, rules, i, j)
        elif rules.strict_fifo:
            break
        else:
            before = j
        j = after
