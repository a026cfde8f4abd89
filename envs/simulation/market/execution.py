"""A job on its instances: set-up, work, batches, the end."""

from __future__ import annotations

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.guards import reconsidered
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import Episodes
from spotweave.envs.simulation.market.ledger import (
    MINIMUM_S,
    batch_delay_hours,
    charge_egress,
    close_bill,
    egress_charge,
    open_bill,
    set_up_s,
    wall_s,
    work_left_s,
)
from spotweave.envs.simulation.market.members import budget_end_s, can_begin
from spotweave.envs.simulation.market.state import NEVER, Lanes, Offers, Rules
from spotweave.envs.simulation.snapshot import Category


@inner
def return_to_buffer(lanes: Lanes, lane: int, job: int) -> None:
    """A job awaits a decision now."""
    t = lanes.lane[lane, at.NOW_S]
    lanes.job[lane, job, at.PHASE] = at.BUFFERED
    lanes.job[lane, job, at.OFFER] = -1
    lanes.when[lane, job, at.EVENT_S] = NEVER
    lanes.when[lane, job, at.NET_S] = NEVER
    lanes.when[lane, job, at.DUE_S] = t
    lanes.job[lane, job, at.ENTERED_S] = t


@inner
def vacate(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> None:
    """The instances of a job stop counting against the quota of its offer."""
    c = lanes.job[lane, job, at.OFFER]
    lanes.offer[lane, c, at.USED] -= episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS]
    lanes.offer[lane, c, at.PRESENT] -= 1


@inner
def watch_from_now(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int
) -> None:
    """A job is on an offer: with a deadline and on spot capacity it is the safety net's business."""
    critical = episodes.job[lanes.episode_of_lane[lane], job, at.CATEGORY] == Category.TIME_CRITICAL.value
    spot = offers.fixed[lanes.job[lane, job, at.OFFER], at.SPOT] == 1
    if rules.guards.safety_net == 1 and critical and spot:
        lanes.when[lane, job, at.NET_S] = lanes.lane[lane, at.NOW_S] + 1


@inner
def begin_set_up(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """Instances run from now on; data are fetched. A budget that does not pay for that ends it at once."""
    slot = lanes.episode_of_lane[lane]
    region = offers.fixed[lanes.job[lane, job, at.OFFER], at.REGION]
    checkpoint = lanes.job[lane, job, at.CHECKPOINT_REGION]
    budgeted = episodes.job[slot, job, at.BUDGET] > 0
    if budgeted:
        egress = egress_charge(episodes, offers, slot, job, region, checkpoint)
        if not can_begin(lanes, episodes, offers, lane, job, egress, MINIMUM_S):
            vacate(lanes, episodes, lane, job)
            return_to_buffer(lanes, lane, job)
            return
    open_bill(lanes, episodes, lane, job)
    charge_egress(lanes, episodes, offers, lane, job)
    if budgeted:
        lanes.when[lane, job, at.LATE_S] = budget_end_s(lanes, episodes, offers, lane, job)
    seconds = set_up_s(episodes, offers, slot, job, region, checkpoint, rules.restart_s)
    lanes.job[lane, job, at.PHASE] = at.SETTING_UP
    lanes.when[lane, job, at.EVENT_S] = lanes.lane[lane, at.NOW_S] + seconds


@inner
def begin_work(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """The next execution starts; a streaming job first waits until its batch is due."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    if episodes.job[slot, job, at.CATEGORY] == Category.STREAMING.value:
        batch = lanes.job[lane, job, at.EXECUTED]
        due = episodes.job[slot, job, at.ARRIVAL_S] + (batch + 1) * episodes.job[slot, job, at.PERIOD_S]
        if t < due:
            lanes.job[lane, job, at.PHASE] = at.IDLE
            lanes.when[lane, job, at.EVENT_S] = due
            return
    work_for(lanes, episodes, lane, job, episodes.execution_s[slot, job, lanes.job[lane, job, at.OFFER]], 0)


@inner
def work_for(lanes: Lanes, episodes: Episodes, lane: int, job: int, execution_s: int, cold_s: int) -> None:
    """What is not saved of an execution starts, and more that comes first."""
    slot, t = lanes.episode_of_lane[lane], lanes.lane[lane, at.NOW_S]
    saved = lanes.job_real[lane, job, at.SAVED]
    work = work_left_s(execution_s, saved) + cold_s
    lanes.job[lane, job, at.PHASE] = at.WORKING
    lanes.job_real[lane, job, at.BASE] = saved
    lanes.job[lane, job, at.WORK_S] = work
    lanes.job[lane, job, at.WORK_START_S] = t
    interval, dump = episodes.job[slot, job, at.INTERVAL_S], episodes.job[slot, job, at.DUMP_S]
    lanes.when[lane, job, at.EVENT_S] = t + wall_s(work, interval, dump)


@inner
def set_up_ends(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """Work begins; a job that is reconsidered where it runs may be moved after a while."""
    slot = lanes.episode_of_lane[lane]
    c = lanes.job[lane, job, at.OFFER]
    begin_work(lanes, episodes, offers, lane, job)
    streams = episodes.job[slot, job, at.CATEGORY] == Category.STREAMING.value
    asked = reconsidered(offers.fixed[c, at.SPOT] == 1, offers.fixed[c, at.QUEUES] == 1, streams)
    lanes.job[lane, job, at.MOVABLE_S] = NEVER
    if asked and rules.reconsider_interval_s > 0:
        ask_later(lanes, episodes, rules, lane, job)


@inner
def ask_later(lanes: Lanes, episodes: Episodes, rules: Rules, lane: int, job: int) -> None:
    """A job is asked after an interval whether to move; a stream, at the end of a batch then."""
    again = lanes.lane[lane, at.NOW_S] + rules.reconsider_interval_s
    if episodes.job[lanes.episode_of_lane[lane], job, at.CATEGORY] == Category.STREAMING.value:
        lanes.job[lane, job, at.MOVABLE_S] = again
        again = NEVER
    lanes.when[lane, job, at.DUE_S] = again


@inner
def execution_ends(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """A batch, or the whole job, is finished now."""
    slot = lanes.episode_of_lane[lane]
    if episodes.job[slot, job, at.CATEGORY] == Category.STREAMING.value:
        lanes.job_real[lane, job, at.DELAY] += batch_delay_hours(lanes, episodes, lane, job)
    lanes.job[lane, job, at.EXECUTED] += 1
    lanes.job_real[lane, job, at.SAVED] = 0.0
    done = lanes.job[lane, job, at.EXECUTED]
    if done < episodes.job[slot, job, at.EXECUTIONS]:
        lanes.job[lane, job, at.CHECKPOINT_REGION] = offers.fixed[lanes.job[lane, job, at.OFFER], at.REGION]
        if done > lanes.job[lane, job, at.LATE_NEXT]:
            lanes.job[lane, job, at.LATE_NEXT] = done
            due = episodes.job[slot, job, at.ARRIVAL_S] + (done + 1) * episodes.job[slot, job, at.PERIOD_S]
            lanes.when[lane, job, at.LATE_S] = due + episodes.job[slot, job, at.ALLOWANCE_S]
        begin_work(lanes, episodes, offers, lane, job)
        if lanes.job[lane, job, at.MOVABLE_S] <= lanes.lane[lane, at.NOW_S]:
            lanes.when[lane, job, at.DUE_S] = lanes.lane[lane, at.NOW_S]
        return
    if episodes.job[slot, job, at.CATEGORY] != Category.STREAMING.value:
        response = lanes.lane[lane, at.NOW_S] - lanes.job[lane, job, at.READY_S]
        lanes.job_real[lane, job, at.DELAY] = (response - episodes.job[slot, job, at.STANDARD_S]) / 3600.0
    close_bill(lanes, episodes, offers, lane, job, False)
    vacate(lanes, episodes, lane, job)
    close_job(lanes, lane, job)
    for step in range(job + 1, episodes.job[slot, job, at.LAST_ROW] + 1):
        if all_needed_ended(lanes, episodes, lane, job, step):
            return_to_buffer(lanes, lane, step)
            lanes.job[lane, step, at.READY_S] = lanes.lane[lane, at.NOW_S]


@inner
def all_needed_ended(lanes: Lanes, episodes: Episodes, lane: int, job: int, step: int) -> bool:
    """Whether a step waited for a job, and waits for nothing else."""
    facts = episodes.job[lanes.episode_of_lane[lane], step]
    if not facts[at.NEEDED_FROM] <= job < facts[at.NEEDED_END]:
        return False
    for other in range(facts[at.NEEDED_FROM], facts[at.NEEDED_END]):
        if lanes.job[lane, other, at.PHASE] != at.DONE:
            return False
    return True


@inner
def close_job(lanes: Lanes, lane: int, job: int) -> None:
    """The job is over; its bills are closed and its delay is known."""
    lanes.job[lane, job, at.PHASE] = at.DONE
    lanes.job[lane, job, at.OFFER] = -1
    lanes.when[lane, job, at.EVENT_S] = NEVER
    lanes.when[lane, job, at.DUE_S] = NEVER
    lanes.when[lane, job, at.LATE_S] = NEVER
    lanes.when[lane, job, at.NET_S] = NEVER
    lanes.job[lane, job, at.FINISH_S] = lanes.lane[lane, at.NOW_S]
    lanes.lane[lane, at.CLOSED] += 1
    lanes.lane_real[lane, at.DELAY_CLOSED] += lanes.job_real[lane, job, at.DELAY]
