"""Fills the base columns of an observation from a lane (see `envs.simulation.snapshot`)."""

from __future__ import annotations

from envs.simulation import columns as col
from envs.simulation.guards.rules import Facts
from envs.simulation.guards.safety import hide_lost_deadline
from envs.simulation.market import columns as at
from envs.simulation.market.billing import MINIMUM_S, egress_charge
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.ledger import batches_due
from envs.simulation.market.member_view import observe_member
from envs.simulation.market.members import is_member
from envs.simulation.market.progress import may_move, set_up_s, share_done, wall_s, work_left_s
from envs.simulation.market.quotes import mean_price, recent_availability, sync_price
from envs.simulation.market.state import (
    CHARGES_PER_USD,
    MEAN_STEPS,
    Lanes,
    Offers,
    Rules,
)
from envs.simulation.snapshot import (
    HISTORY_STEPS,
    Category,
    FloatArray,
    MaskArray,
    derive_into,
)


@inner
def observe_lane(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    lane: int,
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
) -> None:
    """Write the observation of one lane into arrays without a lane axis, mask included.

    A lane whose episode is over shows no jobs and no valid action.
    """
    for c in range(offers.fixed.shape[0]):
        observe_offer(lanes, episodes, offers, lane, c, clusters[c])
        observe_occupation(lanes, lane, c, occupation[c])
    shown = lanes.lane[lane, at.WINDOW_N]
    for k in range(jobs.shape[0]):
        if k < shown or jobs[k, col.PRESENT] != 0.0:  # other rows hold zeros already
            jobs[k, :] = 0.0
            pairs[k, :, :] = 0.0
        if k < shown:
            job = lanes.window[lane, k]
            if rules.federated == 1 and is_member(episodes, lanes.episode_of_lane[lane], job):
                observe_member(lanes, episodes, offers, rules, lane, job, jobs[k], pairs[k])
            else:
                done = share_done(lanes, episodes, lane, job)
                observe_job(lanes, episodes, offers, rules, lane, job, jobs[k], pairs[k], done)
            hide_lost_deadline(clusters, jobs[k], pairs[k], rules.guards)
    derive_into(clusters, jobs, pairs, True, mask)


@inner
def observe_offer(
    lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, c: int, row: FloatArray
) -> None:
    """Columns of one offer."""
    slot = lanes.episode_of_lane[lane]
    available, up_ratio, spell_s, mean_up_s = recent_availability(lanes, episodes, lane, c)
    price_row = sync_price(lanes, episodes, lane, c)
    quota = offers.fixed[c, at.QUOTA]
    steps = min(MEAN_STEPS, lanes.lane[lane, at.SAMPLES])
    row[col.SEQUENCE] = c + 1
    row[col.CAPACITY_NORMAL] = quota if offers.fixed[c, at.QUEUES] == 1 else 0
    row[col.CAPACITY_MAX] = quota
    row[col.CAPACITY_NOW] = quota if available else 0
    row[col.HETERO_FACTOR] = offers.fixed[c, at.HETERO]
    row[col.USED] = lanes.offer[lane, c, at.USED]
    row[col.HALTED] = lanes.offer[lane, c, at.HALTED]
    row[col.MISSED] = lanes.offer[lane, c, at.MISSED]
    row[col.MEAN_OCCUPATION] = lanes.offer[lane, c, at.OCCUPATION_SUM] / (steps * quota) if steps > 0 else 0.0
    row[col.PRICE_USD_HOUR] = episodes.price[slot, c, price_row, at.PRICE] / 1e6
    row[col.ON_DEMAND_USD_HOUR] = episodes.on_demand_usd[slot, c]
    row[col.IS_SPOT] = offers.fixed[c, at.SPOT]
    row[col.AVAILABLE] = 1.0 if available else 0.0
    row[col.UP_RATIO] = up_ratio
    row[col.SPELL_S] = spell_s
    row[col.MEAN_UP_S] = mean_up_s if offers.fixed[c, at.SPOT] == 1 else 0.0
    row[col.LAUNCH_S] = offers.fixed[c, at.LAUNCH_S]
    row[col.NOTICE_S] = offers.fixed[c, at.NOTICE_S]
    row[col.PROVIDER] = offers.fixed[c, at.PROVIDER]
    row[col.REGION] = offers.fixed[c, at.REGION]
    row[col.QUEUES] = offers.fixed[c, at.QUEUES]


@inner
def observe_occupation(lanes: Lanes, lane: int, c: int, row: FloatArray) -> None:
    """The latest samples of an offer's occupation, oldest first, 0 where there are none yet."""
    oldest = lanes.lane[lane, at.SAMPLES] % HISTORY_STEPS
    latest = lanes.occupation[lane, c, oldest : oldest + HISTORY_STEPS]  # a slice: its loop is vectorised
    for k in range(HISTORY_STEPS):
        row[k] = latest[k]


@inner
def observe_job(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    lane: int,
    job: int,
    row: FloatArray,
    pairs: FloatArray,
    done: float,
) -> None:
    """Columns of one job, of whose execution a share is done, and its columns on every offer."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    streaming = episodes.job[slot, job, at.CATEGORY] == Category.STREAMING.value
    running = may_move(lanes, episodes, lane, job)
    arrival = episodes.job[slot, job, at.ARRIVAL_S]
    standard = episodes.job[slot, job, at.STANDARD_S]
    executed = lanes.job[lane, job, at.EXECUTED]
    left = episodes.job[slot, job, at.EXECUTIONS] - executed
    has_deadline = streaming or episodes.job[slot, job, at.CATEGORY] == Category.TIME_CRITICAL.value
    slack = 0
    if has_deadline:
        slack = (
            arrival
            + (executed + 1) * episodes.job[slot, job, at.PERIOD_S]
            + episodes.job[slot, job, at.ALLOWANCE_S]
            - t
        )
    row[col.PRESENT] = 1.0
    row[col.CATEGORY] = episodes.job[slot, job, at.CATEGORY]
    row[col.EXPECTED_HETERO] = episodes.job[slot, job, at.EXPECTED_HETERO]
    row[col.SENSITIVITY] = episodes.job[slot, job, at.SENSITIVITY]
    row[col.STANDARD_S] = standard
    row[col.EXECUTIONS] = left
    row[col.PERIOD_S] = episodes.job[slot, job, at.PERIOD_S]
    row[col.DURATION_S] = (
        left * episodes.job[slot, job, at.PERIOD_S] if streaming else standard * (1.0 - done)
    )
    row[col.WAITED_S] = 0 if running else t - lanes.job[lane, job, at.ENTERED_S]
    row[col.AGE_S] = t - arrival
    row[col.SLACK_S] = slack
    row[col.HAS_DEADLINE] = 1.0 if has_deadline else 0.0
    row[col.PROGRESS] = executed / episodes.job[slot, job, at.EXECUTIONS] if streaming else done
    row[col.RESTART_S] = rules.restart_s
    # A streaming job saves its state at the end of every batch.
    row[col.CHECKPOINT_INTERVAL_S] = (
        episodes.job[slot, job, at.PERIOD_S] if streaming else episodes.job[slot, job, at.INTERVAL_S]
    )
    row[col.DATA_GB] = episodes.job_real[slot, job, at.DATA_GB]
    row[col.CHECKPOINT_GB] = episodes.job_real[slot, job, at.CHECKPOINT_GB]
    row[col.INTERRUPTIONS] = lanes.job[lane, job, at.INTERRUPTED]
    row[col.RUNNING] = 1.0 if running else 0.0
    row[col.MISSES] = lanes.job[lane, job, at.MISSES]
    if streaming:
        row[col.BACKLOG] = batches_due(episodes, slot, job, t) - executed
    observe_pairs(lanes, episodes, offers, rules, lane, job, done, slack, pairs)


@inner
def learn_facts(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    lane: int,
    job: int,
    place: int,
    facts: Facts,
) -> None:
    """Fill in what guards must know about a running job that is to be moved: prices of both places.

    Nothing is lost by a move, which saves first, and no budget is kept outside the snapshot.
    """
    if not may_move(lanes, episodes, lane, job) or place == offers.fixed.shape[0]:
        return
    for c in (lanes.job[lane, job, at.OFFER], place):
        facts.mean_usd_hour[c] = mean_price(lanes, episodes, lane, c, rules.guards.price_memory_s) / 1e6
        facts.minimum_s[c] = MINIMUM_S


@inner
def observe_pairs(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    lane: int,
    job: int,
    done: float,
    slack: int,
    pairs: FloatArray,
) -> None:
    """What each offer would mean for a job."""
    slot = lanes.episode_of_lane[lane]
    running = may_move(lanes, episodes, lane, job)
    hibernated = lanes.job[lane, job, at.PHASE] == at.HIBERNATED
    here = lanes.job[lane, job, at.OFFER] if running or hibernated else -1
    interval, dump = episodes.job[slot, job, at.INTERVAL_S], episodes.job[slot, job, at.DUMP_S]
    # A running job would first save what it has, where it is.
    checkpoint = offers.fixed[here, at.REGION] if running else lanes.job[lane, job, at.CHECKPOINT_REGION]
    for c in range(offers.fixed.shape[0]):
        region = offers.fixed[c, at.REGION]
        execution = episodes.execution_s[slot, job, c]
        transfer = set_up_s(episodes, offers, slot, job, region, checkpoint, rules.restart_s)
        egress = egress_charge(episodes, offers, slot, job, region, checkpoint)
        row = pairs[c]
        row[col.REQUEST] = episodes.job[slot, job, at.EXECUTORS]
        row[col.PEAK_REQUEST] = episodes.job[slot, job, at.EXECUTORS]
        row[col.EXECUTION_S] = wall_s(work_left_s(execution, done), interval, dump)
        row[col.DEADLINE_S] = slack
        row[col.EGRESS_USD] = egress / CHARGES_PER_USD
        row[col.TRANSFER_S] = transfer + (dump if running else 0)
        if c == here:
            row[col.HERE] = 1.0
            row[col.EXECUTION_S] = left_here_s(lanes, episodes, lane, job)


@inner
def left_here_s(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> int:
    """Seconds to the end of the current execution of a job that stays where it runs or hibernates."""
    if lanes.job[lane, job, at.PHASE] == at.WORKING:
        return int(lanes.when[lane, job, at.EVENT_S] - lanes.lane[lane, at.NOW_S])
    left = int(lanes.job[lane, job, at.PAUSED_LEFT_S])
    hibernates = lanes.job[lane, job, at.PHASE] == at.HIBERNATED
    phase = lanes.job[lane, job, at.PAUSED_PHASE] if hibernates else at.IDLE
    if phase == at.WORKING:
        return left
    slot = lanes.episode_of_lane[lane]
    execution = episodes.execution_s[slot, job, lanes.job[lane, job, at.OFFER]]
    work = work_left_s(execution, lanes.job_real[lane, job, at.SAVED])
    interval, dump = episodes.job[slot, job, at.INTERVAL_S], episodes.job[slot, job, at.DUMP_S]
    wall = int(wall_s(work, interval, dump))
    return left + wall if phase == at.SETTING_UP else wall
