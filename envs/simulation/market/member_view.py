"""Fills the base columns of a task of a federated application (see `envs.simulation.snapshot`)."""

from __future__ import annotations

from envs.simulation.market import columns as at
from envs.simulation.market.billing import closing_charge, egress_charge
from envs.simulation.market.budgets import affordable
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.forecast import (
    aggregation_s,
    others_usd_hour,
    round_left_s,
    round_s,
    time_error_s,
)
from envs.simulation.market.members import has_room, owes
from envs.simulation.market.progress import set_up_s, wall_s, work_left_s
from envs.simulation.market.spending import budget_left
from envs.simulation.market.state import (
    BUFFERED,
    CHARGES_PER_USD,
    HIBERNATED,
    IDLE,
    SETTING_UP,
    WORKING,
    Lanes,
    Offers,
    Rules,
)
from envs.simulation.snapshot import FloatArray, JobField, PairField

_J_PRESENT = int(JobField.PRESENT)
_J_CATEGORY = int(JobField.CATEGORY)
_J_EXPECTED_HETERO = int(JobField.EXPECTED_HETERO)
_J_SENSITIVITY = int(JobField.SENSITIVITY)
_J_STANDARD = int(JobField.STANDARD_S)
_J_EXECUTIONS = int(JobField.EXECUTIONS)
_J_PERIOD = int(JobField.PERIOD_S)
_J_DURATION = int(JobField.DURATION_S)
_J_WAITED = int(JobField.WAITED_S)
_J_AGE = int(JobField.AGE_S)
_J_SLACK = int(JobField.SLACK_S)
_J_HAS_DEADLINE = int(JobField.HAS_DEADLINE)
_J_PROGRESS = int(JobField.PROGRESS)
_J_RESTART = int(JobField.RESTART_S)
_J_INTERVAL = int(JobField.CHECKPOINT_INTERVAL_S)
_J_DATA = int(JobField.DATA_GB)
_J_CHECKPOINT = int(JobField.CHECKPOINT_GB)
_J_INTERRUPTIONS = int(JobField.INTERRUPTIONS)
_J_MISSES = int(JobField.MISSES)
_J_IDLE = int(JobField.IDLE)
_J_IS_SERVER = int(JobField.IS_SERVER)
_J_OWES = int(JobField.OWES)
_J_ROUND_LEFT = int(JobField.ROUND_LEFT_S)
_J_ROUND = int(JobField.ROUND_S)
_J_COLD = int(JobField.COLD_S)
_J_HAS_BUDGET = int(JobField.HAS_BUDGET)
_J_BUDGET_LEFT = int(JobField.BUDGET_LEFT_USD)
_J_TIME_ERROR = int(JobField.TIME_ERROR_S)
_J_OTHERS = int(JobField.OTHERS_USD_HOUR)

_P_REQUEST = int(PairField.REQUEST)
_P_PEAK_REQUEST = int(PairField.PEAK_REQUEST)
_P_EXECUTION = int(PairField.EXECUTION_S)
_P_DEADLINE = int(PairField.DEADLINE_S)
_P_EGRESS = int(PairField.EGRESS_USD)
_P_TRANSFER = int(PairField.TRANSFER_S)
_P_HERE = int(PairField.HERE)


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
    waits = state[at.PHASE] in (BUFFERED, HIBERNATED, IDLE)
    row[_J_PRESENT] = 1.0
    row[_J_CATEGORY] = facts[at.CATEGORY]
    row[_J_EXPECTED_HETERO] = facts[at.EXPECTED_HETERO]
    row[_J_SENSITIVITY] = facts[at.SENSITIVITY]
    row[_J_STANDARD] = facts[at.STANDARD_S]
    row[_J_EXECUTIONS] = left
    row[_J_PERIOD] = whole_round
    row[_J_DURATION] = left * whole_round
    row[_J_WAITED] = t - state[at.ENTERED_S] if waits else 0
    row[_J_AGE] = t - facts[at.ARRIVAL_S]
    row[_J_SLACK] = slack
    row[_J_HAS_DEADLINE] = 1.0 if allowance > 0 else 0.0
    row[_J_PROGRESS] = lanes.job_real[lane, job, at.SAVED]
    row[_J_RESTART] = rules.restart_s
    row[_J_INTERVAL] = facts[at.INTERVAL_S]
    row[_J_DATA] = episodes.job_real[slot, job, at.DATA_GB]
    row[_J_CHECKPOINT] = episodes.job_real[slot, job, at.CHECKPOINT_GB]
    row[_J_INTERRUPTIONS] = state[at.INTERRUPTED]
    row[_J_MISSES] = lanes.job[lane, server, at.MISSES]
    row[_J_IDLE] = 1.0 if state[at.PHASE] == IDLE else 0.0
    row[_J_IS_SERVER] = 1.0 if job == server else 0.0
    row[_J_OWES] = 1.0 if in_debt else 0.0
    row[_J_ROUND_LEFT] = round_left_s(lanes, episodes, offers, rules, lane, job)
    row[_J_ROUND] = whole_round
    row[_J_COLD] = facts[at.COLD_S]
    if facts[at.BUDGET] > 0:
        open_bill = closing_charge(lanes, episodes, offers, lane, job) if state[at.PHASE] == IDLE else 0
        row[_J_HAS_BUDGET] = 1.0
        row[_J_BUDGET_LEFT] = (budget_left(lanes, episodes, lane, job) - open_bill) / CHARGES_PER_USD
    row[_J_TIME_ERROR] = time_error_s(lanes, episodes, lane, job)
    row[_J_OTHERS] = others_usd_hour(lanes, episodes, lane, job)
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
    here = state[at.OFFER] if phase in (IDLE, HIBERNATED) else -1
    saved = lanes.job_real[lane, job, at.SAVED]
    for c in range(offers.fixed.shape[0]):
        region = offers.fixed[c, at.REGION]
        request = facts[at.EXECUTORS]
        pays = facts[at.BUDGET] == 0 or affordable(lanes, episodes, offers, rules, lane, job, c)
        if not pays or not has_room(lanes, offers, rules, lane, c, request):
            request = 2 * offers.fixed[c, at.QUOTA] + 1
        warm = c == here and state[at.WARM] == 1
        work = work_left_s(episodes.execution_s[slot, job, c], saved) + (0 if warm else facts[at.COLD_S])
        egress = egress_charge(episodes, offers, slot, job, region, state[at.CHECKPOINT_REGION])
        row = pairs[c]
        row[_P_REQUEST] = request
        row[_P_PEAK_REQUEST] = request
        row[_P_EXECUTION] = wall_s(work, facts[at.INTERVAL_S], facts[at.DUMP_S])
        row[_P_DEADLINE] = slack
        row[_P_EGRESS] = egress / CHARGES_PER_USD
        row[_P_TRANSFER] = set_up_s(
            episodes, offers, slot, job, region, state[at.CHECKPOINT_REGION], rules.restart_s
        )
        if c == here:
            row[_P_HERE] = 1.0
            row[_P_REQUEST] = facts[at.EXECUTORS]
            row[_P_PEAK_REQUEST] = facts[at.EXECUTORS]
            if phase == HIBERNATED and state[at.PAUSED_PHASE] == WORKING:
                row[_P_EXECUTION] = state[at.PAUSED_LEFT_S]
            elif phase == HIBERNATED and state[at.PAUSED_PHASE] == SETTING_UP:
                row[_P_EXECUTION] += state[at.PAUSED_LEFT_S]
