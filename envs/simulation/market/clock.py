"""Advance from one decision to the next: the instants, and the order of events within one.

Within an instant: jobs' own events (by job), availability (by offer), local queues, deadlines (by job),
arrivals, then decisions. Work that ends exactly at its deadline or at an interruption counts as finished.
"""

from __future__ import annotations

import numpy as np

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import entry, inner
from spotweave.envs.simulation.guards import Facts, fallback, guarded, likely_to_end, spare_s
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.applications import (
    aggregation_ends,
    budget_ends,
    dismiss_broke,
    epoch_ends,
    member_ready,
)
from spotweave.envs.simulation.market.episodes import Episodes, sync_availability
from spotweave.envs.simulation.market.execution import (
    begin_work,
    close_job,
    execution_ends,
    set_up_ends,
    vacate,
)
from spotweave.envs.simulation.market.ledger import (
    charge_disk,
    close_bill,
    delay_hours,
    objective,
    record_miss,
    share_after,
    take_mark,
    work_done_s,
)
from spotweave.envs.simulation.market.members import is_client, is_member
from spotweave.envs.simulation.market.observation import learn_facts, observe_job, observe_lane, observe_offer
from spotweave.envs.simulation.market.placement import (
    apply_decision,
    arrive,
    availability_changes,
    finish_move,
    keep_checkpoint,
    launch_ends,
    lost_executor_s,
    serve_queues,
)
from spotweave.envs.simulation.market.state import (
    MEAN_STEPS,
    NEVER,
    SAMPLE_S,
    Lanes,
    Offers,
    Rules,
    capacity_now,
    log_event,
)
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.slices.kernel import next_extension
from spotweave.envs.simulation.snapshot import (
    HISTORY_STEPS,
    Category,
    FloatArray,
    ObservationArrays,
    derive_into,
)

# The safety net over jobs on spot capacity, which no policy is asked about (see `guards`). A job that
# is caught leaves at once and goes on from its latest periodic checkpoint.

LOOK_AGAIN_S = 300
"""How soon the net looks again at a job that it left on spot capacity."""
FULL = 0.95
"""Share of an elastic cluster's executors whose use calls for more."""


@inner
def watch_deadlines(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> None:
    """Take the jobs off spot capacity that have no more time to spare there."""
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        if lanes.when[lane, job, at.NET_S] <= lanes.lane[lane, at.NOW_S]:
            place = look_at(lanes, episodes, offers, rules, lane, job)
            if place >= 0:
                catch(lanes, episodes, offers, rules, lane, job, place)


@inner
def look_at(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> int:
    """Offer that a job must take now, or -1; then the time of its next check is set."""
    phase, t = lanes.job[lane, job, at.PHASE], lanes.lane[lane, at.NOW_S]
    slot, n_offers = lanes.episode_of_lane[lane], offers.fixed.shape[0]
    left_s = episodes.job[slot, job, at.ARRIVAL_S] + episodes.job[slot, job, at.ALLOWANCE_S] - t
    if phase not in (at.LAUNCHING, at.SETTING_UP, at.WORKING) or left_s <= 0:
        lanes.when[lane, job, at.NET_S] = NEVER
        return -1
    clusters, jobs, pairs = lanes.net_clusters[lane], lanes.net_job[lane], lanes.net_pairs[lane]
    mask = lanes.net_mask[lane]
    for c in range(n_offers):  # what is told of other spot offers is not read
        if offers.fixed[c, at.SPOT] == 0 or c == lanes.job[lane, job, at.OFFER]:
            observe_offer(lanes, episodes, offers, lane, c, clusters[c])
        clusters[c, col.IS_SPOT] = offers.fixed[c, at.SPOT]
    saved = lanes.job_real[lane, job, at.SAVED]
    if phase == at.WORKING:
        saved = share_after(lanes, lane, job, work_done_s(lanes, episodes, lane, job, t, True))
    jobs[0, :] = 0.0
    pairs[0, :, :] = 0.0
    observe_job(lanes, episodes, offers, rules, lane, job, jobs[0], pairs[0], saved)
    derive_into(clusters, jobs, pairs, True, mask)
    place = fallback(clusters, pairs[0], mask)
    if place == n_offers:  # everything is full, or too slow: with the next event it is looked at again
        return -1
    spare = spare_s(pairs[0, place, col.DEADLINE_S], pairs[0, place, col.FINISH_S], rules.guards)
    if spare <= 0.0:
        if likely_to_end(
            clusters[lanes.job[lane, job, at.OFFER]], left_on_spot_s(lanes, lane, job, pairs[0]), rules.guards
        ):
            lanes.when[lane, job, at.NET_S] = t + LOOK_AGAIN_S
            return -1
        return place
    lanes.when[lane, job, at.NET_S] = t + int(np.ceil(spare))
    return -1


@inner
def left_on_spot_s(lanes: Lanes, lane: int, job: int, pairs: FloatArray) -> float:
    """Seconds until a job ends where it is."""
    phase_s = float(lanes.when[lane, job, at.EVENT_S] - lanes.lane[lane, at.NOW_S])
    if lanes.job[lane, job, at.PHASE] == at.WORKING:
        return phase_s
    row = pairs[lanes.job[lane, job, at.OFFER]]
    set_up_s = row[col.TRANSFER_S] if lanes.job[lane, job, at.PHASE] == at.LAUNCHING else 0.0
    return float(phase_s + set_up_s + row[col.EXECUTION_S])


@inner
def catch(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int, place: int
) -> None:
    """A job leaves its spot capacity for another offer."""
    phase, slot = lanes.job[lane, job, at.PHASE], lanes.episode_of_lane[lane]
    if phase == at.WORKING:
        keep_checkpoint(lanes, episodes, offers, lane, job)
        elapsed = lanes.lane[lane, at.NOW_S] - lanes.job[lane, job, at.WORK_START_S]
        lanes.counters[lane, at.LOST_EXECUTOR_S] += lost_executor_s(lanes, episodes, slot, lane, job, elapsed)
    if phase != at.LAUNCHING:
        close_bill(lanes, episodes, offers, lane, job, False)
    vacate(lanes, episodes, lane, job)
    lanes.when[lane, job, at.NET_S] = NEVER
    counted = offers.fixed[place, at.QUEUES] == 0
    if counted:
        lanes.offer[lane, place, at.USED] += episodes.job[slot, job, at.EXECUTORS]
    arrive(lanes, episodes, offers, rules, lane, job, place, counted)


@inner
def advance(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> None:
    """Let time pass until a decision is due or the episode is over."""
    while lanes.lane[lane, at.STATUS] == at.RUNNING:
        if lanes.lane[lane, at.CLOSED] == lanes.lane[lane, at.LIMIT]:
            lanes.lane[lane, at.STATUS] = at.ENDED
            lanes.lane[lane, at.WINDOW_N] = 0
        elif lanes.lane[lane, at.DECISIONS] >= rules.max_decisions:
            truncate(lanes, episodes, offers, rules, lane)
        elif not fill_window(lanes, lane):
            t = next_instant(lanes, episodes, offers, lane)
            sample_occupation(lanes, offers, rules, lane, min(t, rules.max_s))
            lanes.lane[lane, at.NOW_S] = min(t, rules.max_s)
            if t > rules.max_s:
                truncate(lanes, episodes, offers, rules, lane)
            else:
                live_instant(lanes, episodes, offers, rules, lane)
                watch_deadlines(lanes, episodes, offers, rules, lane)
        else:
            return


@inner
def fill_window(lanes: Lanes, lane: int) -> bool:
    """Show the first J jobs that are due; whether there are any."""
    t = lanes.lane[lane, at.NOW_S]
    n = 0
    forget_closed(lanes, lane)
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        if lanes.when[lane, job, at.DUE_S] <= t:
            lanes.window[lane, n] = job
            n += 1
            if n == lanes.window.shape[1]:
                break
    lanes.lane[lane, at.WINDOW_N] = n
    return n > 0


@inner
def forget_closed(lanes: Lanes, lane: int) -> None:
    """Take the jobs that have ended off the list of open ones."""
    n = lanes.lane[lane, at.OPEN_N]
    if n == lanes.lane[lane, at.ARRIVED] - lanes.lane[lane, at.CLOSED]:
        return
    kept = 0
    for k in range(n):
        job = lanes.open[lane, k]
        if lanes.job[lane, job, at.PHASE] != at.DONE:
            lanes.open[lane, kept] = job
            kept += 1
    lanes.lane[lane, at.OPEN_N] = kept


@inner
def next_instant(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int) -> int:
    """When something happens next."""
    slot = lanes.episode_of_lane[lane]
    arrived = lanes.lane[lane, at.ARRIVED]
    t = NEVER
    if arrived < lanes.lane[lane, at.LIMIT]:
        t = episodes.job[slot, arrived, at.ARRIVAL_S]
    for k in range(lanes.lane[lane, at.OPEN_N]):
        when = lanes.when[lane, lanes.open[lane, k]]
        t = min(t, when[at.EVENT_S], when[at.LATE_S], when[at.DUE_S])
        if when[at.NET_S] > lanes.lane[lane, at.NOW_S]:  # before that the net found no way yet
            t = min(t, when[at.NET_S])
    for c in range(offers.fixed.shape[0]):
        if offers.fixed[c, at.ELASTIC] > 0 and lanes.offer[lane, c, at.HALTED] > 0:
            t = min(t, lanes.lane[lane, at.SAMPLES] * SAMPLE_S)
        if offers.fixed[c, at.SPOT] == 1 and lanes.offer[lane, c, at.PRESENT] > 0:
            t = min(t, episodes.up[slot, c, lanes.offer[lane, c, at.UP_NOW], at.UNTIL])
    return t


@inner
def sample_occupation(lanes: Lanes, offers: Offers, rules: Rules, lane: int, t: int) -> None:
    """Record how many executors are used at every sampling moment up to `t`, before `t` changes them.

    Elastic clusters are extended or shrunk at these moments.
    """
    end = t // SAMPLE_S + 1
    for n in range(lanes.lane[lane, at.SAMPLES], end):
        place = n % HISTORY_STEPS
        leaving = (n - MEAN_STEPS) % HISTORY_STEPS
        for c in range(lanes.offer.shape[1]):
            used, quota = lanes.offer[lane, c, at.USED], offers.fixed[c, at.QUOTA]
            ring = lanes.occupation[lane, c]
            if n >= MEAN_STEPS:
                lanes.offer[lane, c, at.OCCUPATION_SUM] -= int(ring[leaving] * quota + 0.5)
            lanes.offer[lane, c, at.OCCUPATION_SUM] += used
            ring[place] = ring[place + HISTORY_STEPS] = np.float32(used) / np.float32(quota)
            if offers.fixed[c, at.ELASTIC] > 0:
                extend(lanes, offers, rules, lane, c, n * SAMPLE_S)
        lanes.lane[lane, at.SAMPLES] = n + 1


@inner
def extend(lanes: Lanes, offers: Offers, rules: Rules, lane: int, c: int, t: int) -> None:
    """The elasticity controller of an owned cluster (Liu 2022, section 5.4); with a queue it is full."""
    cluster = lanes.offer[lane, c]
    if cluster[at.HALTED] > 0 or cluster[at.USED] >= FULL * capacity_now(lanes, offers, lane, c):
        cluster[at.FULL_S] = t
    most, before = offers.fixed[c, at.ELASTIC], cluster[at.EXTENSION]
    cluster[at.EXTENSION] = next_extension(
        before,
        most,
        rules.elastic_step,
        cluster[at.USED],
        offers.fixed[c, at.QUOTA] - most,
        t - cluster[at.FULL_S],
        rules.elastic_window_s,
    )
    if cluster[at.EXTENSION] != before:
        log_event(lanes, lane, at.EXTENDED, cluster[at.EXTENSION], c, t, 0)


@inner
def live_instant(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> None:
    """Everything that happens at `now_s` before its decisions."""
    t = lanes.lane[lane, at.NOW_S]
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        if lanes.when[lane, job, at.EVENT_S] == t:
            job_event(lanes, episodes, offers, rules, lane, job)
    slot = lanes.episode_of_lane[lane]
    for c in range(offers.fixed.shape[0]):
        touches = offers.fixed[c, at.SPOT] == 1 and lanes.offer[lane, c, at.PRESENT] > 0
        if touches and episodes.up[slot, c, lanes.offer[lane, c, at.UP_NOW], at.UNTIL] <= t:
            available = sync_availability(lanes, episodes, lane, c, t)
            availability_changes(lanes, episodes, offers, rules, lane, c, available)
    if lanes.lane[lane, at.QUEUE_N] > 0:
        serve_queues(lanes, episodes, offers, rules, lane)
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        if lanes.when[lane, job, at.LATE_S] > t:
            continue
        if is_client(episodes, slot, job):
            budget_ends(lanes, episodes, offers, lane, job)
        else:
            record_miss(lanes, episodes, offers, rules, lane, job)
            next_deadline(lanes, episodes, lane, job)
    while lanes.lane[lane, at.ARRIVED] < lanes.lane[lane, at.LIMIT]:
        job = lanes.lane[lane, at.ARRIVED]
        if episodes.job[slot, job, at.ARRIVAL_S] > t:
            break
        job_arrives(lanes, episodes, lane, job)
    if rules.federated == 1:
        dismiss_broke(lanes, episodes, offers, rules, lane)
        if lanes.lane[lane, at.QUEUE_N] > 0:  # the server of an application that is over made room
            serve_queues(lanes, episodes, offers, rules, lane)


@inner
def job_event(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """The phase of a job ends."""
    phase = lanes.job[lane, job, at.PHASE]
    if phase == at.LAUNCHING:
        launch_ends(lanes, episodes, offers, rules, lane, job)
    elif rules.federated == 1 and is_member(episodes, lanes.episode_of_lane[lane], job):
        member_event(lanes, episodes, offers, rules, lane, job)
    elif phase == at.SETTING_UP:
        set_up_ends(lanes, episodes, offers, rules, lane, job)
    elif phase == at.WORKING:
        execution_ends(lanes, episodes, offers, lane, job)
    elif phase == at.IDLE:
        begin_work(lanes, episodes, offers, lane, job)
    elif phase == at.MOVING:
        finish_move(lanes, episodes, offers, rules, lane, job)


@inner
def member_event(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """The phase of a task of a federated application ends."""
    if lanes.job[lane, job, at.PHASE] == at.SETTING_UP:
        member_ready(lanes, episodes, offers, rules, lane, job)
    elif is_client(episodes, lanes.episode_of_lane[lane], job):
        epoch_ends(lanes, episodes, offers, rules, lane, job)
    else:
        aggregation_ends(lanes, episodes, offers, rules, lane, job)


@inner
def job_arrives(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> None:
    """A job enters the buffer."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    lanes.open[lane, lanes.lane[lane, at.OPEN_N]] = job
    lanes.lane[lane, at.OPEN_N] += 1
    lanes.lane[lane, at.ARRIVED] += 1
    lanes.job[lane, job, at.PHASE] = at.BUFFERED
    waits = episodes.job[slot, job, at.NEEDED_FROM] < episodes.job[slot, job, at.NEEDED_END]
    lanes.when[lane, job, at.DUE_S] = NEVER if waits else t
    lanes.job[lane, job, at.READY_S] = NEVER if waits else t
    lanes.job[lane, job, at.ENTERED_S] = t
    category = episodes.job[slot, job, at.CATEGORY]
    if category == Category.STREAMING.value:
        lanes.when[lane, job, at.LATE_S] = (
            t + episodes.job[slot, job, at.PERIOD_S] + episodes.job[slot, job, at.ALLOWANCE_S]
        )
    elif category == Category.TIME_CRITICAL.value or (
        category == Category.FEDERATED.value and episodes.job[slot, job, at.ALLOWANCE_S] > 0
    ):
        lanes.when[lane, job, at.LATE_S] = t + episodes.job[slot, job, at.ALLOWANCE_S]


@inner
def next_deadline(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> None:
    """After a miss: a streaming job has another deadline, others have none."""
    slot = lanes.episode_of_lane[lane]
    lanes.job[lane, job, at.LATE_NEXT] += 1
    streaming = episodes.job[slot, job, at.CATEGORY] == Category.STREAMING.value
    if streaming and lanes.job[lane, job, at.LATE_NEXT] < episodes.job[slot, job, at.EXECUTIONS]:
        lanes.when[lane, job, at.LATE_S] += episodes.job[slot, job, at.PERIOD_S]
    else:
        lanes.when[lane, job, at.LATE_S] = NEVER


@inner
def truncate(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> None:
    """Stop the episode now: instances end, and every deadline that is not met counts as missed."""
    slot = lanes.episode_of_lane[lane]
    for job in range(lanes.lane[lane, at.LIMIT]):
        phase = lanes.job[lane, job, at.PHASE]
        if phase == at.DONE:
            continue
        category = episodes.job[slot, job, at.CATEGORY]
        left = episodes.job[slot, job, at.EXECUTIONS] - lanes.job[lane, job, at.LATE_NEXT]
        if category == Category.STREAMING.value:
            lanes.job[lane, job, at.MISSES] += left
            lanes.counters[lane, at.MISSES_BATCHES] += left
        elif category == Category.TIME_CRITICAL.value:
            lanes.job[lane, job, at.MISSES] += left
            lanes.counters[lane, at.MISSES_TC] += left
        elif category == Category.FEDERATED.value and episodes.job[slot, job, at.ALLOWANCE_S] > 0:
            late = 1 - min(1, lanes.job[lane, job, at.LATE_NEXT])
            lanes.job[lane, job, at.MISSES] += late
            lanes.counters[lane, at.MISSES_TC] += late
        if job < lanes.lane[lane, at.ARRIVED]:
            lanes.job_real[lane, job, at.DELAY] = delay_hours(lanes, episodes, lane, job)
        if phase == at.HIBERNATED:
            charge_disk(lanes, episodes, offers, lane, job)
        elif phase in (at.SETTING_UP, at.WORKING, at.IDLE, at.MOVING):
            close_bill(lanes, episodes, offers, lane, job, False)
        close_job(lanes, lane, job)
    lanes.lane[lane, at.STATUS] = at.TRUNCATED
    lanes.lane[lane, at.WINDOW_N] = 0


# One call for all lanes: the entry from Python into the compiled world.


@entry
def step_lanes(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    facts: Facts,
    actions: Ints,
    active: Bools,
    seen: ObservationArrays,
    rewards: Floats,
    done: Bools,
    deciding: bool,
) -> int:
    """Take a valid decision in every active lane and go on to its next one, or to the episode's end.

    Guards look at each action with the observation that it answers.

    Args:
        lanes: state, changed in place.
        episodes: episode data.
        offers: fixed facts of the offers.
        rules: scalars of the world.
        facts: room for what else guards know.
        actions: (N,) shown job * (C + 1) + offer, C for none.
        active: (N,) which lanes are stepped.
        seen: observations, rewritten where a lane is active.
        rewards: (N,) filled with minus what the objective grew by.
        done: (N,) filled with whether the episode is over.
        deciding: whether decisions are taken; lanes that have just begun have none to take yet.

    Returns:
        The first lane with an invalid action, in which case nothing changes; else -1.
    """
    for lane in range(actions.shape[0]):
        if active[lane] and deciding:
            action = actions[lane]
            invalid = action < 0 or action >= seen.mask.shape[1] or lanes.lane[lane, at.STATUS] != at.RUNNING
            if invalid or seen.mask[lane, action] == 0:
                return lane
    n_places = offers.fixed.shape[0] + 1
    for lane in range(actions.shape[0]):
        rewards[lane] = 0.0
        done[lane] = True
        if active[lane]:
            if deciding:
                row, place = divmod(actions[lane], n_places)
                job = lanes.window[lane, row]
                learn_facts(lanes, episodes, offers, rules, lane, job, place, facts)
                clusters, task, pairs = seen.clusters[lane], seen.jobs[lane, row], seen.pairs[lane, row]
                choices = seen.mask[lane, row * n_places : (row + 1) * n_places]
                place = guarded(clusters, task, pairs, choices, place, facts, rules.guards)
                take_mark(lanes, episodes, offers, rules, lane, job)
                lanes.lane[lane, at.DECISIONS] += 1
                apply_decision(lanes, episodes, offers, rules, lane, job, place)
            advance(lanes, episodes, offers, rules, lane)
            if deciding:
                after = objective(lanes, episodes, offers, rules, lane)
                rewards[lane] = lanes.lane_real[lane, at.OBJECTIVE] - after
                lanes.lane_real[lane, at.OBJECTIVE] = after
            done[lane] = lanes.lane[lane, at.STATUS] != at.RUNNING
            clusters, occupation, jobs = seen.clusters[lane], seen.occupation[lane], seen.jobs[lane]
            pairs, mask = seen.pairs[lane], seen.mask[lane]
            observe_lane(lanes, episodes, offers, rules, lane, clusters, occupation, jobs, pairs, mask)
    return -1
