"""The provider takes spot instances away, or gives hibernated ones back."""

from __future__ import annotations

from envs.simulation.market import columns as at
from envs.simulation.market.applications import member_interrupted, member_resumes
from envs.simulation.market.billing import (
    charge_disk,
    close_bill,
    open_bill,
    share_after,
    share_done,
    work_done_s,
)
from envs.simulation.market.compiled import inner
from envs.simulation.market.draws import NOTICE, uniform
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.execution import return_to_buffer, vacate, watch_from_now
from envs.simulation.market.members import freezes, is_member
from envs.simulation.market.placement import cancel_move, lost_executor_s
from envs.simulation.market.state import NEVER, Lanes, Offers, Rules, log_event


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
