"""Fills the base columns of an observation from a lane (see `envs.simulation.snapshot`)."""

from __future__ import annotations

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.guards import Facts, hide_lost_deadline
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.applications import affordable
from spotweave.envs.simulation.market.episodes import Episodes, mean_price, recent_availability, sync_price
from spotweave.envs.simulation.market.forecast import (
    aggregation_s,
    others_usd_hour,
    round_left_s,
    round_s,
    time_error_s,
)
from spotweave.envs.simulation.market.ledger import (
    MINIMUM_S,
    batches_due,
    closing_charge,
    egress_charge,
    may_move,
    set_up_s,
    share_done,
    wall_s,
    work_left_s,
)
from spotweave.envs.simulation.market.members import budget_left, has_room, is_member, owes
from spotweave.envs.simulation.market.state import (
    CHARGES_PER_USD,
    MEAN_STEPS,
    Lanes,
    Offers,
    Rules,
    capacity_now,
)
from spotweave.envs.simulation.snapshot import (
    HISTORY_STEPS,
    Category,
    FloatArray,
    MaskArray,
    derive_into,
    request_beyond,
)

# Fills the base columns of a task of a federated application (see `envs.simulation.snapshot`).


@inner
def observe_member(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    lane: int,
    job: int,
    row: FloatArray,
    pairs: FloatArray,
) -> None:
    """Columns of one task, and its columns on every offer.

    Its executions are the rounds left, its standard time an epoch (of a server: an aggregation), its period a
    whole round and its progress the share of the current epoch that is saved.
    """
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    facts, state = episodes.job[slot, job], lanes.job[lane, job]
    server = facts[at.SERVER]
    left = facts[at.EXECUTIONS] - state[at.EXECUTED]
    in_debt = owes(lanes, episodes, lane, job)
    whole_round = round_s(lanes, episodes, lane, job)
    allowance = episodes.job[slot, server, at.ALLOWANCE_S]
    slack = facts[at.ARRIVAL_S] + allowance - t if allowance > 0 else 0
    waits = state[at.PHASE] in (at.BUFFERED, at.HIBERNATED, at.IDLE)
    row[col.PRESENT] = 1.0
    row[col.CATEGORY] = facts[at.CATEGORY]
    row[col.EXPECTED_HETERO] = facts[at.EXPECTED_HETERO]
    row[col.SENSITIVITY] = facts[at.SENSITIVITY]
    row[col.STANDARD_S] = facts[at.STANDARD_S]
    row[col.EXECUTIONS] = left
    row[col.PERIOD_S] = whole_round
    row[col.DURATION_S] = left * whole_round
    row[col.WAITED_S] = t - state[at.ENTERED_S] if waits else 0
    row[col.AGE_S] = t - facts[at.ARRIVAL_S]
    row[col.SLACK_S] = slack
    row[col.HAS_DEADLINE] = 1.0 if allowance > 0 else 0.0
    row[col.PROGRESS] = lanes.job_real[lane, job, at.SAVED]
    row[col.RESTART_S] = rules.restart_s
    row[col.CHECKPOINT_INTERVAL_S] = facts[at.INTERVAL_S]
    row[col.DATA_GB] = episodes.job_real[slot, job, at.DATA_GB]
    row[col.CHECKPOINT_GB] = episodes.job_real[slot, job, at.CHECKPOINT_GB]
    row[col.INTERRUPTIONS] = state[at.INTERRUPTED]
    row[col.MISSES] = lanes.job[lane, server, at.MISSES]
    row[col.IDLE] = 1.0 if state[at.PHASE] == at.IDLE else 0.0
    row[col.IS_SERVER] = 1.0 if job == server else 0.0
    row[col.OWES] = 1.0 if in_debt else 0.0
    row[col.ROUND_LEFT_S] = round_left_s(lanes, episodes, offers, rules, lane, job)
    row[col.ROUND_S] = whole_round
    row[col.COLD_S] = facts[at.COLD_S]
    if facts[at.BUDGET] > 0:
        open_bill = closing_charge(lanes, episodes, offers, lane, job) if state[at.PHASE] == at.IDLE else 0
        row[col.HAS_BUDGET] = 1.0
        left_usd = (budget_left(lanes, episodes, lane, job) - open_bill) / CHARGES_PER_USD
        row[col.BUDGET_LEFT_USD] = max(0.0, left_usd)
    row[col.TIME_ERROR_S] = time_error_s(lanes, episodes, lane, job)
    row[col.OTHERS_USD_HOUR] = others_usd_hour(lanes, episodes, lane, job)
    if allowance > 0:
        # What the rounds after the coming one need is not allowed for it.
        later = max(0, left - 1)
        slack -= int(later * whole_round) + aggregation_s(lanes, episodes, lane, server)
    observe_member_pairs(lanes, episodes, offers, rules, lane, job, slack, pairs)


@inner
def observe_member_pairs(
    lanes: Lanes,
    episodes: Episodes,
    offers: Offers,
    rules: Rules,
    lane: int,
    job: int,
    slack: int,
    pairs: FloatArray,
) -> None:
    """What each offer would mean for a task. Where it may not go it asks for more than there is."""
    slot = lanes.episode_of_lane[lane]
    facts, state = episodes.job[slot, job], lanes.job[lane, job]
    phase = state[at.PHASE]
    here = state[at.OFFER] if phase in (at.IDLE, at.HIBERNATED) else -1
    saved = lanes.job_real[lane, job, at.SAVED]
    for c in range(offers.fixed.shape[0]):
        region = offers.fixed[c, at.REGION]
        request = facts[at.EXECUTORS]
        pays = facts[at.BUDGET] == 0 or affordable(lanes, episodes, offers, rules, lane, job, c)
        # In a queue, tasks of one application might hold what others of it wait for, and wait for them.
        if not pays or not has_room(lanes, offers, rules, lane, c, request):
            request = request_beyond(offers.fixed[c, at.QUOTA])
        warm = c == here and state[at.WARM] == 1
        work = work_left_s(episodes.execution_s[slot, job, c], saved) + (0 if warm else facts[at.COLD_S])
        egress = egress_charge(episodes, offers, slot, job, region, state[at.CHECKPOINT_REGION])
        row = pairs[c]
        row[col.REQUEST] = request
        row[col.PEAK_REQUEST] = request
        row[col.EXECUTION_S] = wall_s(work, facts[at.INTERVAL_S], facts[at.DUMP_S])
        row[col.DEADLINE_S] = slack
        row[col.EGRESS_USD] = egress / CHARGES_PER_USD
        row[col.TRANSFER_S] = set_up_s(
            episodes, offers, slot, job, region, state[at.CHECKPOINT_REGION], rules.restart_s
        )
        if c == here:
            row[col.HERE] = 1.0
            row[col.REQUEST] = facts[at.EXECUTORS]
            row[col.PEAK_REQUEST] = facts[at.EXECUTORS]
            if phase == at.HIBERNATED and state[at.PAUSED_PHASE] == at.WORKING:
                row[col.EXECUTION_S] = state[at.PAUSED_LEFT_S]
            elif phase == at.HIBERNATED and state[at.PAUSED_PHASE] == at.SETTING_UP:
                row[col.EXECUTION_S] += state[at.PAUSED_LEFT_S]


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
    row[col.CAPACITY_NORMAL] = quota - offers.fixed[c, at.ELASTIC] if offers.fixed[c, at.QUEUES] == 1 else 0
    row[col.CAPACITY_MAX] = quota
    row[col.CAPACITY_NOW] = capacity_now(lanes, offers, lane, c) if available else 0
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
    row[col.EXECUTIONS] = left if streaming else 1 + steps_after(episodes, slot, job)
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
def steps_after(episodes: Episodes, slot: int, job: int) -> int:
    """Steps of the same workflow that wait for this one; 0 for other jobs.

    A stage waits for all of the one before, so whatever follows the first step that waits for it does too.
    """
    last = episodes.job[slot, job, at.LAST_ROW]
    for step in range(job + 1, last + 1):
        if episodes.job[slot, step, at.NEEDED_FROM] <= job < episodes.job[slot, step, at.NEEDED_END]:
            return int(last - step + 1)
    return 0


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
