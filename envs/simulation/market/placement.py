"""Decisions and their first consequences: launches, local queues, moves."""

from __future__ import annotations

import numpy as np

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.applications import (
    lose_results,
    member_interrupted,
    member_resumes,
    release,
)
from spotweave.envs.simulation.market.episodes import Episodes, sync_availability
from spotweave.envs.simulation.market.execution import (
    ask_later,
    begin_set_up,
    return_to_buffer,
    vacate,
    watch_from_now,
)
from spotweave.envs.simulation.market.forecast import asked_after_s
from spotweave.envs.simulation.market.ledger import (
    charge_disk,
    close_bill,
    may_move,
    open_bill,
    share_after,
    share_done,
    work_done_s,
    worked_s,
)
from spotweave.envs.simulation.market.members import freezes, has_room, is_client, is_member, notify
from spotweave.envs.simulation.market.state import (
    FAILURE,
    LATENCY,
    NEVER,
    NOTICE,
    Lanes,
    Offers,
    Rules,
    capacity_now,
    log_event,
    uniform,
)
from spotweave.envs.simulation.round_estimates import ASK_AGAIN_MOST_S


@inner
def apply_decision(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int, c: int
) -> None:
    """Put a job on offer c, or on none for now (c = number of offers)."""
    t = lanes.lane[lane, at.NOW_S]
    slot = lanes.episode_of_lane[lane]
    running = may_move(lanes, episodes, lane, job)
    if is_client(episodes, slot, job) and decide_client(lanes, episodes, offers, rules, lane, job, c):
        return
    if c == offers.fixed.shape[0]:
        if running:
            ask_later(lanes, episodes, rules, lane, job)
        else:
            lanes.when[lane, job, at.DUE_S] = t + rules.decision_interval_s
        return
    lanes.when[lane, job, at.DUE_S] = NEVER
    if running:
        begin_move(lanes, episodes, offers, rules, lane, job, c)
        return
    if lanes.job[lane, job, at.PHASE] == at.HIBERNATED:
        leave_hibernated(lanes, episodes, offers, lane, job)
        if is_member(episodes, slot, job) and episodes.job[slot, job, at.SERVER] == job:
            lose_results(lanes, episodes, lane, job)
            notify(lanes, episodes, lane, job)
    counted = offers.fixed[c, at.QUEUES] == 0
    if counted:
        lanes.offer[lane, c, at.USED] += episodes.job[slot, job, at.EXECUTORS]
    arrive(lanes, episodes, offers, rules, lane, job, c, counted)


@inner
def decide_client(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int, c: int
) -> bool:
    """What is particular to a federated client's decision; whether that is all of it.

    With an idle instance: keep it (its own offer), release it (none), or end it and go on elsewhere. Without
    one, "none" lets it ask again in time.
    """
    t = lanes.lane[lane, at.NOW_S]
    phase, none = lanes.job[lane, client, at.PHASE], offers.fixed.shape[0]
    if phase == at.IDLE:
        if c == lanes.job[lane, client, at.OFFER]:
            lanes.when[lane, client, at.DUE_S] = t + int(ASK_AGAIN_MOST_S)
            return True
        release(lanes, episodes, offers, rules, lane, client)
        if lanes.lane[lane, at.QUEUE_N] > 0:
            serve_queues(lanes, episodes, offers, rules, lane)
        return bool(c == none)
    if phase == at.BUFFERED and c == none:
        again = asked_after_s(lanes, episodes, offers, rules, lane, client)
        lanes.when[lane, client, at.DUE_S] = t + again
        return True
    return False


@inner
def begin_move(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int, c: int
) -> None:
    """Save a running job's progress and reserve its new place; the old instances run until it is saved.

    An owned cluster that has no room yet reserves nothing: the job joins its queue.
    """
    slot = lanes.episode_of_lane[lane]
    lanes.job_real[lane, job, at.SAVED] = share_done(lanes, episodes, lane, job)
    lanes.job[lane, job, at.CHECKPOINT_REGION] = offers.fixed[lanes.job[lane, job, at.OFFER], at.REGION]
    lanes.job[lane, job, at.PHASE] = at.MOVING
    lanes.job[lane, job, at.TARGET] = c
    lanes.when[lane, job, at.EVENT_S] = lanes.lane[lane, at.NOW_S] + episodes.job[slot, job, at.DUMP_S]
    executors = episodes.job[slot, job, at.EXECUTORS]
    reserves = has_room(lanes, offers, rules, lane, c, executors)
    lanes.job[lane, job, at.RESERVED] = 1 if reserves else 0
    if reserves:
        lanes.offer[lane, c, at.USED] += executors


@inner
def cancel_move(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> None:
    """The old instances are gone before the progress was saved: the new place is not needed."""
    if lanes.job[lane, job, at.RESERVED] == 1:
        executors = episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS]
        lanes.offer[lane, lanes.job[lane, job, at.TARGET], at.USED] -= executors


@inner
def finish_move(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """The progress is saved: leave the old instances for the new offer."""
    close_bill(lanes, episodes, offers, lane, job, False)
    vacate(lanes, episodes, lane, job)
    target, counted = lanes.job[lane, job, at.TARGET], lanes.job[lane, job, at.RESERVED] == 1
    arrive(lanes, episodes, offers, rules, lane, job, target, counted)


@inner
def leave_hibernated(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """Give up hibernated instances; what no checkpoint holds is lost."""
    slot = lanes.episode_of_lane[lane]
    charge_disk(lanes, episodes, offers, lane, job)
    lanes.offer[lane, lanes.job[lane, job, at.OFFER], at.PRESENT] -= 1
    if lanes.job[lane, job, at.PAUSED_PHASE] == at.MOVING:
        cancel_move(lanes, episodes, lane, job)
    if lanes.job[lane, job, at.PAUSED_PHASE] == at.WORKING:
        stopped = lanes.job[lane, job, at.PAUSED_S] - lanes.job[lane, job, at.WORK_START_S]
        lanes.counters[lane, at.LOST_EXECUTOR_S] += lost_executor_s(lanes, episodes, slot, lane, job, stopped)


@inner
def lost_executor_s(lanes: Lanes, episodes: Episodes, slot: int, lane: int, job: int, elapsed_s: int) -> int:
    """Executor-seconds of work since the last periodic checkpoint."""
    interval, dump = episodes.job[slot, job, at.INTERVAL_S], episodes.job[slot, job, at.DUMP_S]
    lost = worked_s(elapsed_s, interval, dump, False) - worked_s(elapsed_s, interval, dump, True)
    return int(episodes.job[slot, job, at.EXECUTORS] * lost)


@inner
def arrive(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int, c: int, counted: bool
) -> None:
    """A job comes to offer c, whose quota counts it already or, of an owned cluster, when it starts."""
    lanes.job[lane, job, at.OFFER] = c
    lanes.offer[lane, c, at.PRESENT] += 1
    lanes.offer[lane, c, at.DEPLOYMENTS] += 1
    lanes.job[lane, job, at.DEPLOYMENT] = lanes.offer[lane, c, at.DEPLOYMENTS]
    lanes.job[lane, job, at.WAITED] = 0
    if offers.fixed[c, at.QUEUES] == 0:
        launch(lanes, episodes, offers, rules, lane, job)
        return
    slot = lanes.episode_of_lane[lane]
    lanes.job[lane, job, at.ENTERED_S] = lanes.lane[lane, at.NOW_S]
    if counted:
        lanes.job[lane, job, at.STAY_START_S] = lanes.lane[lane, at.NOW_S]
        begin_set_up(lanes, episodes, offers, rules, lane, job)
        return
    lanes.job[lane, job, at.PHASE] = at.QUEUED
    lanes.when[lane, job, at.EVENT_S] = NEVER
    lanes.offer[lane, c, at.HALTED] += episodes.job[slot, job, at.EXECUTORS]
    lanes.queue[lane, lanes.lane[lane, at.QUEUE_N]] = job
    lanes.lane[lane, at.QUEUE_N] += 1
    serve_queues(lanes, episodes, offers, rules, lane)


@inner
def launch(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """Ask the provider for instances. Whether and when they come does not depend on the policy."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    c = lanes.job[lane, job, at.OFFER]
    lanes.job[lane, job, at.ATTEMPT] += 1
    lanes.job[lane, job, at.LAUNCHED_S] = t
    attempt = lanes.job[lane, job, at.ATTEMPT]
    key = episodes.keys[slot, 0]
    available = sync_availability(lanes, episodes, lane, c, t)
    fails = not available or uniform(key, job, attempt, FAILURE) < offers.chance[c, at.LAUNCH_FAILURE]
    lanes.job[lane, job, at.PHASE] = at.LAUNCHING
    lanes.job[lane, job, at.FAILS] = 1 if fails else 0
    watch_from_now(lanes, episodes, offers, rules, lane, job)
    if fails:
        lanes.when[lane, job, at.EVENT_S] = t + rules.failure_s
    else:
        latency = np.ceil(offers.fixed[c, at.LAUNCH_S] * (0.5 + uniform(key, job, attempt, LATENCY)))
        lanes.when[lane, job, at.EVENT_S] = t + int(latency)


@inner
def launch_ends(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """Instances run, or it is known that they will not."""
    if lanes.job[lane, job, at.FAILS] == 0:
        begin_set_up(lanes, episodes, offers, rules, lane, job)
        return
    lanes.counters[lane, at.LAUNCH_FAILURES] += 1
    vacate(lanes, episodes, lane, job)
    return_to_buffer(lanes, lane, job)


@inner
def serve_queues(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> None:
    """Start what fits, in order of arrival; `strict_fifo` lets nothing pass a job that does not fit."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    kept = 0
    for k in range(lanes.lane[lane, at.QUEUE_N]):
        job = lanes.queue[lane, k]
        c = lanes.job[lane, job, at.OFFER]
        executors = episodes.job[slot, job, at.EXECUTORS]
        blocked = False
        if rules.strict_fifo == 1:
            for earlier in range(kept):
                blocked = blocked or lanes.job[lane, lanes.queue[lane, earlier], at.OFFER] == c
        if blocked or lanes.offer[lane, c, at.USED] + executors > capacity_now(lanes, offers, lane, c):
            lanes.queue[lane, kept] = job
            kept += 1
            continue
        lanes.offer[lane, c, at.HALTED] -= executors
        lanes.offer[lane, c, at.USED] += executors
        lanes.job[lane, job, at.WAITED] = 1 if t > lanes.job[lane, job, at.ENTERED_S] else 0
        lanes.job[lane, job, at.STAY_START_S] = t
        begin_set_up(lanes, episodes, offers, rules, lane, job)
    lanes.lane[lane, at.QUEUE_N] = kept


# The provider takes spot instances away, or gives hibernated ones back.


@inner
def availability_changes(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, c: int, available: bool
) -> None:
    """An offer with jobs on it came up or went down at this moment."""
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        if lanes.job[lane, job, at.OFFER] != c:
            continue
        if available:
            if lanes.job[lane, job, at.PHASE] == at.HIBERNATED:
                resume(lanes, episodes, offers, rules, lane, job)
        elif lanes.job[lane, job, at.PHASE] == at.LAUNCHING:
            lanes.counters[lane, at.LAUNCH_FAILURES] += 1
            vacate(lanes, episodes, lane, job)
            return_to_buffer(lanes, lane, job)
        elif lanes.job[lane, job, at.PHASE] != at.HIBERNATED:
            interrupt(lanes, episodes, offers, lane, job)


@inner
def interrupt(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """The instances of a job stop now; the job keeps what a notice or a checkpoint saved."""
    c = lanes.job[lane, job, at.OFFER]
    lanes.counters[lane, at.INTERRUPTIONS] += 1
    lanes.job[lane, job, at.INTERRUPTED] += 1
    log_event(lanes, lane, at.INTERRUPTION, job, c, lanes.lane[lane, at.NOW_S], 0)
    slot = lanes.episode_of_lane[lane]
    kept = freezes(episodes, offers, slot, job, c) or notice_saves(lanes, episodes, offers, lane, job)
    close_bill(lanes, episodes, offers, lane, job, True)
    save_on_interruption(lanes, episodes, offers, lane, job)
    if freezes(episodes, offers, slot, job, c):
        hibernate(lanes, episodes, lane, job)
    else:
        if lanes.job[lane, job, at.PHASE] == at.MOVING:
            cancel_move(lanes, episodes, lane, job)
        vacate(lanes, episodes, lane, job)
        return_to_buffer(lanes, lane, job)
    if is_member(episodes, slot, job):
        member_interrupted(lanes, episodes, lane, job, kept)


@inner
def notice_saves(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> bool:
    """Whether a notice comes in time to save everything that the job's instances hold."""
    slot = lanes.episode_of_lane[lane]
    c = lanes.job[lane, job, at.OFFER]
    luck = uniform(episodes.keys[slot, 1], job, lanes.job[lane, job, at.ATTEMPT], NOTICE)
    noticed = luck >= offers.chance[c, at.NOTICE_MISSED]
    return bool(noticed and episodes.job[slot, job, at.DUMP_S] <= offers.fixed[c, at.NOTICE_S])


@inner
def save_on_interruption(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """What survives outside the instances: all with a sufficient notice, else the last checkpoint.

    Hibernation starts at once, so its notice saves nothing; what it freezes counts as lost only when the
    hibernated instances are given up.
    """
    if lanes.job[lane, job, at.PHASE] != at.WORKING:
        return
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    c = lanes.job[lane, job, at.OFFER]
    hibernates = freezes(episodes, offers, slot, job, c)
    if not hibernates and notice_saves(lanes, episodes, offers, lane, job):
        lanes.job_real[lane, job, at.SAVED] = share_done(lanes, episodes, lane, job)
        lanes.job[lane, job, at.CHECKPOINT_REGION] = offers.fixed[c, at.REGION]
        return
    keep_checkpoint(lanes, episodes, offers, lane, job)
    if not hibernates:
        elapsed = t - lanes.job[lane, job, at.WORK_START_S]
        lanes.counters[lane, at.LOST_EXECUTOR_S] += lost_executor_s(lanes, episodes, slot, lane, job, elapsed)


@inner
def keep_checkpoint(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """A working job has what its latest periodic checkpoint holds."""
    kept = work_done_s(lanes, episodes, lane, job, lanes.lane[lane, at.NOW_S], True)
    if kept > 0:
        region = offers.fixed[lanes.job[lane, job, at.OFFER], at.REGION]
        lanes.job_real[lane, job, at.SAVED] = share_after(lanes, lane, job, kept)
        lanes.job[lane, job, at.CHECKPOINT_REGION] = region


@inner
def hibernate(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> None:
    """Freeze a job on its instances; it may be put elsewhere meanwhile."""
    t = lanes.lane[lane, at.NOW_S]
    lanes.offer[lane, lanes.job[lane, job, at.OFFER], at.USED] -= episodes.job[
        lanes.episode_of_lane[lane], job, at.EXECUTORS
    ]
    lanes.job[lane, job, at.PAUSED_S] = t
    lanes.job[lane, job, at.PAUSED_LEFT_S] = lanes.when[lane, job, at.EVENT_S] - t
    lanes.job[lane, job, at.PAUSED_PHASE] = lanes.job[lane, job, at.PHASE]
    lanes.job[lane, job, at.PHASE] = at.HIBERNATED
    lanes.when[lane, job, at.EVENT_S] = NEVER
    lanes.when[lane, job, at.DUE_S] = t
    lanes.job[lane, job, at.ENTERED_S] = t


@inner
def resume(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """Hibernated instances run again, billed again, exactly where they stopped."""
    t = lanes.lane[lane, at.NOW_S]
    charge_disk(lanes, episodes, offers, lane, job)
    pause = t - lanes.job[lane, job, at.PAUSED_S]
    phase = lanes.job[lane, job, at.PAUSED_PHASE]
    lanes.offer[lane, lanes.job[lane, job, at.OFFER], at.USED] += episodes.job[
        lanes.episode_of_lane[lane], job, at.EXECUTORS
    ]
    lanes.job[lane, job, at.PHASE] = phase
    lanes.when[lane, job, at.DUE_S] = NEVER
    lanes.job[lane, job, at.WORK_START_S] += pause
    lanes.when[lane, job, at.EVENT_S] = t + lanes.job[lane, job, at.PAUSED_LEFT_S]
    if phase == at.IDLE:  # the next batch fell due, or falls due, by the clock
        lanes.when[lane, job, at.EVENT_S] = max(t, lanes.when[lane, job, at.EVENT_S] - pause)
    watch_from_now(lanes, episodes, offers, rules, lane, job)
    open_bill(lanes, episodes, lane, job)
    if phase == at.IDLE and is_member(episodes, lanes.episode_of_lane[lane], job):
        member_resumes(lanes, episodes, offers, rules, lane, job)
