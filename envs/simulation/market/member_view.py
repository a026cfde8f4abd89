"""Fills the base columns of a task of a federated application (see `envs.simulation.snapshot`)."""

from __future__ import annotations

from envs.simulation import columns as col
from envs.simulation.market import columns as at
from envs.simulation.market.applications import affordable
from envs.simulation.market.billing import closing_charge, egress_charge
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.forecast import (
    aggregation_s,
    others_usd_hour,
    round_left_s,
    round_s,
    time_error_s,
)
from envs.simulation.market.members import budget_left, has_room, owes
from envs.simulation.market.progress import set_up_s, wall_s, work_left_s
from envs.simulation.market.state import (
    CHARGES_PER_USD,
    Lanes,
    Offers,
    Rules,
)
from envs.simulation.snapshot import FloatArray, request_beyond


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
