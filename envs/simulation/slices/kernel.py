"""One lane of the slice world, compiled: the order of events in a slice, and nothing else.

A slice, in order (Liu 2022, section 5.4, "Local intra-cluster scheduler" and "Elasticity controller"; where
the text is open this is our choice):

1. executions that end release their executors and count their misses; a job whose last execution ends is
   valued and leaves;
2. batches due in this slice join their local queue, by job arrival;
3. the elasticity controller of each elastic cluster acts;
4. arriving jobs enter the global buffer;
5. if the buffer is not empty, one decision is taken; the job joins the local queue behind what is there;
6. each local scheduler passes over its queue in order and starts whatever fits (strict_fifo: until something
   does not fit);
7. the occupation ratio of each cluster is recorded.

AR = wait inside the cluster + execution; the time in the global buffer does not count. A job's next batch is
requested at max(deployment + k * period, end of the batch before).

Cells of the lane's arrays are addressed in full (`cluster[i, c, USED]`) where code runs in every slice: a
view of a row costs more than what is done with it.
"""

from __future__ import annotations

from numba import njit

from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.slices import columns as at
from spotweave.envs.simulation.slices.state import NOBODY, Lanes, Rules, Tables
from spotweave.envs.simulation.snapshot import HISTORY_STEPS

# Local queues and the time wheel of one lane: where jobs wait for executors, and for their next event.
#
# Every job has at most one pending event or one waiting execution, so both are linked lists over the same
# column `LINK`: a slot of the wheel holds the jobs with an event in that slice, a local queue the jobs that
# wait on that cluster. A queue is looked at only when something changed that may let an execution start.


@linked()
def request_now(lanes: Lanes, tables: Tables, i: int, j: int) -> int:
    """Executors that the current execution of a deployed job asks for."""
    s = lanes.slot[i]
    c = lanes.job[i, j, at.CLUSTER]
    if tables.uses_peak[s, j, lanes.job[i, j, at.DONE]]:
        return int(tables.pair[s, j, c, at.PEAK_REQUEST])
    return int(tables.pair[s, j, c, at.REQUEST])


@linked()
def plan(lanes: Lanes, i: int, j: int, time: int) -> None:
    """Put job j's one pending event on the wheel."""
    slot = time % lanes.wheel.shape[1]
    lanes.job[i, j, at.LINK] = lanes.wheel[i, slot]
    lanes.wheel[i, slot] = j


@linked()
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


@linked()
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


@linked()
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


@linked()
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


# The value of a decision, computed when its job ends (Liu 2022, eq. 4.1, 4.2 and section 5.3).

COMPONENTS = ("own_misses", "mutual_misses", "delay")


@linked()
def finish_values(lanes: Lanes, tables: Tables, rules: Rules, i: int, j: int, ratio: float) -> None:
    """Fill the three value components of job j, whose last execution just ended.

    Chapter 5, the decomposition at the end of section 5.3: v1 own misses, v2 misses of the cluster after a
    wait, v3 delay, with R_j = ratio - 1. Improper heterogeneity (IH): the execution time alone exceeds the
    deadline there. Initial competition (IC): the first execution waited.

    Chapter 4, eq. 4.1 (and 4.2, where a general job never misses): -lambda * own misses, -gamma * misses of
    all jobs anywhere from the deployment through the slice of the job's end, its own included, and
    -eta * the mean running time ratio.

    Args:
        lanes: state; `decayed` holds the sums of section 5.3.
        tables: workloads.
        rules: the world's constants.
        i: lane.
        j: job.
        ratio: mean AR / SR of the job.
    """
    job = lanes.job[i, j]
    values = lanes.values[i, j]
    unqueued = float(job[at.MISSED_UNQUEUED])
    if rules.chapter4:
        values[0] = -rules.lam * (unqueued + job[at.MISSED_QUEUED])
        values[1] = -rules.gamma * (lanes.lane[i, at.MISSED_ANYWHERE] - job[at.MISSED_BEFORE])
        values[2] = -rules.eta * ratio
        return
    s = lanes.slot[i]
    c = job[at.CLUSTER]
    pair = tables.pair[s, j, c]
    improper = pair[at.DEADLINE] > 0 and pair[at.EXECUTION] > pair[at.DEADLINE]
    competed = job[at.INITIAL_WAIT] == 1
    delay = ratio - 1.0
    m = 1.0
    psi = 1.0
    scale = rules.p_psi if delay > 0.0 else 1.0 / rules.p_psi
    if improper:
        m *= rules.p_m
        psi *= scale
    if competed:
        m *= rules.p_m
        psi *= scale
    weight = rules.factor[c] * m / tables.job[s, j, at.EXPECTED_HETERO]
    values[0] = -weight * (unqueued + lanes.decayed[i, j, 0])
    values[1] = -weight * lanes.decayed[i, j, 1]
    values[2] = -psi * delay


LONG_AGO = -(2**40)
"""`HIGH_AT` before any slice was that full."""


@njit(cache=True, error_model="numpy")
def begin_lane(lanes: Lanes, i: int) -> None:
    """Put lane i before slice 0 of the episode in its slot."""
    lanes.lane[i, :] = 0
    lanes.lane[i, at.DECIDED] = NOBODY
    lanes.lane[i, at.LIMIT] = lanes.job.shape[1]
    lanes.cluster[i, :, :] = 0
    lanes.cluster[i, :, at.HIGH_AT] = LONG_AGO
    lanes.cluster[i, :, at.HEAD] = NOBODY
    lanes.cluster[i, :, at.TAIL] = NOBODY
    lanes.job[i, :, :] = 0
    lanes.decayed[i, :, :] = 0.0
    lanes.values[i, :, :] = 0.0
    lanes.wheel[i, :] = NOBODY
    lanes.occupation[i, :, :] = 0.0
    lanes.starts[i, :, :] = 0


@njit(cache=True, error_model="numpy")
def next_extension(
    extension: int, extension_max: int, step: int, used: int, normal: int, slices_since_high: int, window: int
) -> int:
    """The elasticity controller: extension in effect from this slice on.

    It acts every slice: up by one step while the latest slice at or above the threshold lies within the
    window, else down by one step if those executors are unused (section 5.4; the text does not say how often
    it acts, nor what happens to used executors).
    """
    if slices_since_high <= window:
        return min(extension + step, extension_max)
    if extension > 0:
        lower = max(extension - step, 0)
        if used <= normal + lower:
            return lower
    return extension


@linked()
def _end_execution(lanes: Lanes, tables: Tables, rules: Rules, i: int, j: int) -> float:
    """Release executors and count a miss: the reward, -`miss_cost` for a miss."""
    s = lanes.slot[i]
    job = lanes.job[i, j]
    c = job[at.CLUSTER]
    cluster = lanes.cluster[i, c]
    cluster[at.USED] -= request_now(lanes, tables, i, j)
    cluster[at.DIRTY] = 1
    actual = lanes.lane[i, at.TIME] - job[at.REQUESTED_AT]
    job[at.DONE] += 1
    job[at.ACTUAL] += actual
    deadline = tables.pair[s, j, c, at.DEADLINE]
    if deadline == 0 or actual <= deadline:
        return 0.0
    cluster[at.MISSED] += 1
    lanes.lane[i, at.MISSED_ANYWHERE] += 1
    if job[at.WAITED] == 1:
        job[at.MISSED_QUEUED] += 1
        cluster[at.LATE_NOW] += 1
        lanes.decayed[i, j, 0] += rules.decay[cluster[at.DEPLOYED] - job[at.DEPLOYED_BEFORE]]
    else:
        job[at.MISSED_UNQUEUED] += 1
    return -rules.miss_cost


@linked()
def _spread_misses(lanes: Lanes, rules: Rules, i: int) -> None:
    """Add this slice's misses after a wait to every job of the cluster (W_cl of section 5.3)."""
    for k in range(lanes.lane[i, at.ACTIVE]):
        j = lanes.active[i, k]
        cluster = lanes.cluster[i, lanes.job[i, j, at.CLUSTER]]
        late = cluster[at.LATE_NOW]
        if late > 0:
            later = cluster[at.DEPLOYED] - lanes.job[i, j, at.DEPLOYED_BEFORE]
            lanes.decayed[i, j, 1] += rules.decay[later] * late
    lanes.cluster[i, :, at.LATE_NOW] = 0


@linked()
def _end_job(lanes: Lanes, tables: Tables, rules: Rules, i: int, j: int) -> float:
    """Value the job's decision and let it go: the reward, `delay_cost` * (1 - mean AR / SR)."""
    job = lanes.job[i, j]
    data = tables.job[lanes.slot[i], j]
    job[at.PHASE] = at.OVER
    job[at.ENDED_AT] = lanes.lane[i, at.TIME]
    lanes.lane[i, at.ENDED] += 1
    last = lanes.lane[i, at.ACTIVE] - 1
    moved = lanes.active[i, last]
    lanes.active[i, job[at.POSITION]] = moved
    lanes.job[i, moved, at.POSITION] = job[at.POSITION]
    lanes.lane[i, at.ACTIVE] = last
    ratio = job[at.ACTUAL] / (data[at.STANDARD] * data[at.EXECUTIONS])
    finish_values(lanes, tables, rules, i, j, ratio)
    return float(rules.delay_cost * (1.0 - ratio))


@linked()
def _events(lanes: Lanes, tables: Tables, rules: Rules, i: int) -> float:
    """Steps 1 and 2 of a slice: the reward of what ended."""
    n_due = take_due(lanes, i)
    reward = 0.0
    time = lanes.lane[i, at.TIME]
    for k in range(n_due):
        j = lanes.due[i, k]
        if lanes.job[i, j, at.PHASE] == at.RUNNING:
            reward += _end_execution(lanes, tables, rules, i, j)
    if reward < 0.0:
        _spread_misses(lanes, rules, i)
    for k in range(n_due):
        j = lanes.due[i, k]
        job = lanes.job[i, j]
        if job[at.PHASE] == at.RUNNING:
            data = tables.job[lanes.slot[i], j]
            if job[at.DONE] == data[at.EXECUTIONS]:
                reward += _end_job(lanes, tables, rules, i, j)
                continue
            job[at.PHASE] = at.BETWEEN
            request_at = job[at.DEPLOYED_AT] + job[at.DONE] * data[at.PERIOD]
            if request_at > time:
                plan(lanes, i, j, request_at)
                continue
        enqueue(lanes, tables, i, j)
    return reward


@linked()
def _extend(lanes: Lanes, rules: Rules, i: int) -> None:
    """Step 3 of a slice: the elasticity controllers."""
    time = lanes.lane[i, at.TIME]
    cluster = lanes.cluster
    for c in range(rules.normal.shape[0]):
        if rules.extension_max[c] > 0:
            extension = next_extension(
                cluster[i, c, at.EXTENSION],
                rules.extension_max[c],
                rules.elastic_step,
                cluster[i, c, at.USED],
                rules.normal[c],
                time - cluster[i, c, at.HIGH_AT],
                rules.elastic_window,
            )
            if extension != cluster[i, c, at.EXTENSION]:
                cluster[i, c, at.EXTENSION] = extension
                cluster[i, c, at.DIRTY] = 1


@linked()
def _arrive(lanes: Lanes, tables: Tables, i: int) -> None:
    """Step 4 of a slice: jobs enter the global buffer."""
    lane = lanes.lane[i]
    s = lanes.slot[i]
    while lane[at.ARRIVED] < lane[at.LIMIT]:
        j = lane[at.ARRIVED]
        if tables.job[s, j, at.ARRIVAL] > lane[at.TIME]:
            break
        lanes.job[i, j, at.PHASE] = at.IN_BUFFER
        lanes.buffer[i, lane[at.BUFFERED]] = j
        lane[at.BUFFERED] += 1
        lane[at.ARRIVED] += 1


@linked()
def _deploy(lanes: Lanes, tables: Tables, i: int, position: int, c: int) -> None:
    """Step 5 of a slice: the job at `position` of the buffer goes to cluster c."""
    lane = lanes.lane[i]
    j = lanes.buffer[i, position]
    lane[at.BUFFERED] -= 1
    for k in range(position, lane[at.BUFFERED]):
        lanes.buffer[i, k] = lanes.buffer[i, k + 1]
    cluster = lanes.cluster[i, c]
    cluster[at.DEPLOYED] += 1
    job = lanes.job[i, j]
    job[at.CLUSTER] = c
    job[at.DEPLOYED_AT] = lane[at.TIME]
    job[at.DEPLOYED_BEFORE] = cluster[at.DEPLOYED]
    job[at.MISSED_BEFORE] = lane[at.MISSED_ANYWHERE]
    job[at.POSITION] = lane[at.ACTIVE]
    lanes.active[i, lane[at.ACTIVE]] = j
    lane[at.ACTIVE] += 1
    lane[at.DECIDED] = j
    enqueue(lanes, tables, i, j)


@linked()
def _close_slice(lanes: Lanes, tables: Tables, rules: Rules, i: int) -> None:
    """Steps 6 and 7 of a slice; the clock moves on."""
    time = lanes.lane[i, at.TIME]
    place = time % HISTORY_STEPS
    cluster = lanes.cluster
    for c in range(rules.normal.shape[0]):
        if cluster[i, c, at.DIRTY] == 1:
            schedule(lanes, tables, rules, i, c)
        ratio = cluster[i, c, at.USED] / (rules.normal[c] + cluster[i, c, at.EXTENSION])
        lanes.occupation[i, c, place] = ratio
        if ratio >= rules.elastic_threshold:
            cluster[i, c, at.HIGH_AT] = time
    lanes.lane[i, at.TIME] = time + 1


@linked()
def advance_lane(lanes: Lanes, tables: Tables, rules: Rules, i: int) -> float:
    """Run lane i to its next decision, or to the end of the last job: the reward of what ended.

    A slice in which a decision is due stops after its step 4; `decide` takes it from there.
    """
    lane = lanes.lane
    slots = lanes.wheel.shape[1]
    reward = 0.0
    while True:
        if lanes.wheel[i, lane[i, at.TIME] % slots] != NOBODY:
            reward += _events(lanes, tables, rules, i)
            if lane[i, at.ENDED] == lane[i, at.LIMIT]:
                lane[i, at.EPISODE_DONE] = 1
                return reward
        _extend(lanes, rules, i)
        if lane[i, at.ARRIVED] < lane[i, at.LIMIT]:
            _arrive(lanes, tables, i)
        if lane[i, at.BUFFERED] > 0:
            return reward
        _close_slice(lanes, tables, rules, i)


@linked()
def decide(lanes: Lanes, tables: Tables, rules: Rules, i: int, action: int) -> None:
    """Take the decision that lane i awaits and end its slice.

    `action` is position * (C + 1) + cluster; cluster C deploys nothing. It must be valid (see `is_valid`) and
    the lane not done (`EPISODE_DONE`). `DECIDED` tells which job it was about.
    """
    n_clusters = rules.normal.shape[0]
    c = action % (n_clusters + 1)
    if c < n_clusters:
        _deploy(lanes, tables, i, action // (n_clusters + 1), c)
    else:
        lanes.lane[i, at.DECIDED] = lanes.buffer[i, action // (n_clusters + 1)]
    _close_slice(lanes, tables, rules, i)


@linked()
def is_valid(lanes: Lanes, rules: Rules, i: int, window: int, action: int) -> bool:
    """Whether lane i, not done, may take this action while `window` jobs of its buffer are shown."""
    n_clusters = rules.normal.shape[0]
    position = action // (n_clusters + 1)
    if action < 0 or position >= min(lanes.lane[i, at.BUFFERED], window):
        return False
    return rules.allow_none or action % (n_clusters + 1) < n_clusters
