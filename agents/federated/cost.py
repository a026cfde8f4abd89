"""What each choice about one federated task is expected to cost, its times, and what `mtdqn` sees of it.

A client may start each epoch at any time between the beginning of its round and the latest start with
which it still delivers in time. A client that trains at the end of one round and at the beginning of the
next needs one instance, one spin-up and one cold epoch for both. So of the two states that a client can
be in when a round begins, "on" is worth half of what starting an instance costs more than "off"; and an
idle instance is worth keeping for just that long. (Off, late epoch, on, early epoch, off: two rounds, one
start.)

This is the only cost of federated work: the rules `round_cost` and `expected_cost`, `mtdqn` and the live
loop's appraisals all use it. The form is that of Multi-FedLS's cost model (Brum 2023, eq. 6.4); what
releasing an instance saves is FedCostAware's idea (Sinha 2025, section III-B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.agents.policy import BOUND, Policy, Question, bounded
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.round_estimates import slack_s
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.snapshot import FloatArray, Observation

LARGE = 1e6  # USD of a choice that is not valid
BEGIN_S, FINISH_S, EARLY_S, LATE_S, START_S = range(5)
N_TIMES = 5  # columns of the times of a task on each offer, see `Choices`
_SHORTEST_UP_S = 60.0


class RoundParameters(NamedTuple):
    """How the expected cost weighs what is uncertain."""

    buffer_s: float = 5.0  # a start is due this long before the latest one in time,
    buffer_errors: float = 1.0  # plus this multiple of the error that expected times had lately,
    buffer_launch: float = 0.2  # or, before any was seen, this share of the launch
    # USD that a second's delay of the round costs, for each USD that all instances of the application cost in
    # a second,
    delay_price: float = 2.0
    own_instance: float = 1.0  # where the task's own counts with this weight, at the least price;
    delay_usd_hour: float = 0.0  # and what an hour's delay costs besides
    # share of what a start costs that an idle instance may cost before it is released
    keep_share: float = 0.5
    hazard: float = 0.5  # weight of the expected cost of an interruption
    owned_usd_hour: float = 0.36  # what an owned executor-hour, which has no price, is worth to other jobs
    miss_usd: float = 25.0  # price of an application's missed deadline
    # share of `EGRESS_USD` that every round pays (messages); the rest is paid at every start (data)
    egress_in_rounds: float = 1.0


@dataclass(frozen=True)
class Choices:
    """n decisions about one task each; C offers, then "none for now". Seconds and USD."""

    valid: Bools  # (n, C + 1)
    cost: Floats  # (n, C + 1) expected USD of each choice; LARGE where it is not valid
    unit: Floats  # (n,) what a start on the offer that suits best costs: the measure of all costs
    begin_s: Floats  # (n, C) from now until the next epoch would begin there
    finish_s: Floats  # (n, C) until it would end
    early_s: Floats  # (n, C) how long before it is needed
    late_s: Floats  # (n, C) how long after
    # (n,) from now until the latest start in time, on the offer that would then be the cheapest
    slack_s: Floats
    start_s: Floats  # (n, C) launch and cold extra


@linked()
def late_usd(late_s: float, job: FloatArray, delay_usd_s: float, miss_usd: float) -> float:
    """What it costs that a task lets its application's round end `late_s` later.

    All that the application holds is paid for meanwhile. Of the time to spare until its deadline every second
    lost makes a miss likelier; once the deadline has passed nothing does.
    """
    usd = delay_usd_s * late_s
    if job[col.HAS_DEADLINE] != 0.0 and job[col.SLACK_S] > 0.0:
        spare_s = max(1.0, np.float64(job[col.SLACK_S]) - np.float64(job[col.DURATION_S]))
        usd += miss_usd * min(1.0, late_s / spare_s)
    return usd


@linked()
def interruptions_per_s(cluster: FloatArray) -> float:
    """Expected interruptions per second, from the mean length of the spells seen; 0 on demand."""
    mean_s = np.float64(cluster[col.MEAN_UP_S])
    if cluster[col.IS_SPOT] == 0.0 or mean_s <= 0.0:
        return 0.0
    return 1.0 / max(mean_s, _SHORTEST_UP_S)


@linked()
def weigh_task(
    clusters: FloatArray,
    job: FloatArray,
    pairs: FloatArray,
    absent_s: Floats,
    price_usd_hour: Floats,
    interruptions: Floats,
    parameters: RoundParameters,
    usd: Floats,
    times: Floats,
) -> tuple[float, float]:
    """Weigh the choices of one task as if each could be had now.

    Args:
        clusters: (C, N_CLUSTER_FIELDS).
        job: (N_JOB_FIELDS,) a row of a federated task.
        pairs: (C, N_PAIR_FIELDS) of it.
        absent_s: (C,) seconds after which a wait can count on each offer.
        price_usd_hour: (C,) of an executor; of an owned one what it is worth to other jobs.
        interruptions: (C,) expected per second, times the weight that they have.
        parameters: weights.
        usd: (C + 1,) overwritten with the expected USD of each offer, then of "none for now".
        times: (C, N_TIMES) overwritten.

    Returns:
        What a start on the offer that suits best costs (USD), and the seconds until the latest start in time
        on the offer that would then be the cheapest.
    """
    n = len(clusters)
    cold = np.float64(job[col.COLD_S])
    left, whole = np.float64(job[col.ROUND_LEFT_S]), np.float64(job[col.ROUND_S])
    owes = job[col.OWES] > 0
    opens = 0.0 if owes else left
    needed = left + (0.0 if owes else whole)
    at_start = 1.0 - parameters.egress_in_rounds
    price = np.empty(n)
    best_price = begin_usd_least = np.inf
    start_least = np.inf
    for c in range(n):
        price[c] = price_usd_hour[c] / 3600 * np.float64(pairs[c, col.REQUEST])
        again_s = np.float64(clusters[c, col.LAUNCH_S]) + np.float64(pairs[c, col.TRANSFER_S])
        times[c, START_S] = again_s + cold
        start_least = min(start_least, times[c, START_S])
        if pairs[c, col.REQUEST] <= clusters[c, col.CAPACITY_MAX]:
            best_price = min(best_price, price[c])
            data_usd = at_start * np.float64(pairs[c, col.EGRESS_USD])
            begin_usd_least = min(begin_usd_least, price[c] * times[c, START_S] + data_usd)
    rentable = np.isfinite(best_price)
    delay_usd_s = parameters.delay_usd_hour / 3600 + parameters.delay_price * (
        np.float64(job[col.OTHERS_USD_HOUR]) / 3600
        + parameters.own_instance * (best_price if rentable else 0.0)
    )
    keep_usd = parameters.keep_share * begin_usd_least if rentable else 0.0
    # Where a start takes long against a round, a place is for many rounds.
    rounds_after = max(0.0, np.float64(job[col.EXECUTIONS]) - 1) * start_least / (start_least + whole + 1)
    best = -1
    best_later = again = fresh = np.inf
    for c in range(n):
        here = pairs[c, col.HERE] > 0
        again_s = np.float64(clusters[c, col.LAUNCH_S]) + np.float64(pairs[c, col.TRANSFER_S])
        launch = 0.0 if here else again_s
        execution = np.float64(pairs[c, col.EXECUTION_S])
        begin = max(launch, opens)
        finish = begin + execution
        early, late = max(0.0, needed - finish), max(0.0, finish - needed)
        times[c, BEGIN_S], times[c, FINISH_S] = begin, finish
        times[c, EARLY_S], times[c, LATE_S] = early, late
        data_usd = at_start * np.float64(pairs[c, col.EGRESS_USD])
        messages_usd = parameters.egress_in_rounds * np.float64(pairs[c, col.EGRESS_USD])
        begin_usd = price[c] * times[c, START_S] + data_usd
        hazard = interruptions[c]
        # An interruption costs a start, and the round as much time as no early start made up for.
        lost_s = times[c, START_S] + 0.5 * execution
        loss_usd = begin_usd + late_usd(max(0.0, lost_s - early), job, delay_usd_s, parameters.miss_usd)
        after_usd = min(price[c] * early, keep_usd)
        placed = price[c] * finish + after_usd + late_usd(late, job, delay_usd_s, parameters.miss_usd)
        placed = placed + hazard * finish * loss_usd + messages_usd
        if not here:
            placed = placed + data_usd
        excess_s = max(0.0, execution - max(whole, left))
        future = rounds_after * (price[c] * execution + delay_usd_s * excess_s + messages_usd)
        usd[c] = placed + future
        # Later: started on the offer that is then the cheapest, at the latest time: it makes up for nothing.
        fresh_s = execution + cold if here else execution
        later_loss_usd = begin_usd + late_usd(lost_s, job, delay_usd_s, parameters.miss_usd)
        later = price[c] * (again_s + fresh_s) + hazard * (again_s + fresh_s) * later_loss_usd
        later = later + messages_usd + data_usd + future
        if absent_s[c] > 0.0:
            spare_s = max(0.0, slack_s(owes, left, whole, again_s, fresh_s))
            later += late_usd(max(0.0, absent_s[c] - spare_s), job, delay_usd_s, parameters.miss_usd)
        if best < 0 or (pairs[c, col.REQUEST] <= clusters[c, col.CAPACITY_MAX] and later < best_later):
            best, again, fresh = c, again_s, fresh_s
            if pairs[c, col.REQUEST] <= clusters[c, col.CAPACITY_MAX]:
                best_later = later
    slack = slack_s(owes, left, whole, again, fresh)
    error_s = np.float64(job[col.TIME_ERROR_S])
    seen = parameters.buffer_errors * error_s if error_s > 0 else parameters.buffer_launch * again
    short_s = max(0.0, parameters.buffer_s + seen - slack) + max(0.0, opens + fresh - needed)
    waiting = best_later if np.isfinite(best_later) else 0.0
    usd[n] = waiting + late_usd(short_s, job, delay_usd_s, parameters.miss_usd)
    if job[col.IS_SERVER] > 0:
        lasts = np.float64(job[col.DURATION_S])
        # Nothing goes on without a server: it waits only for a place that it can count on later.
        usd[n] = LARGE / 2
        for c in range(n):
            here = pairs[c, col.HERE] > 0
            again_s = np.float64(clusters[c, col.LAUNCH_S]) + np.float64(pairs[c, col.TRANSFER_S])
            launch = 0.0 if here else again_s
            egress_share = parameters.egress_in_rounds if here else 1.0
            egress_usd = egress_share * np.float64(pairs[c, col.EGRESS_USD])
            lost_usd = late_usd(again_s + 0.5 * whole, job, delay_usd_s, parameters.miss_usd)
            held_usd = (price[c] + interruptions[c] * lost_usd) * (launch + lasts)
            usd[c] = held_usd + late_usd(launch, job, delay_usd_s, parameters.miss_usd) + egress_usd
            if absent_s[c] > 0.0 and pairs[c, col.REQUEST] <= clusters[c, col.CAPACITY_MAX]:
                late = late_usd(launch + absent_s[c], job, delay_usd_s, parameters.miss_usd)
                usd[n] = min(usd[n], held_usd + late + egress_usd)
    if job[col.EXECUTIONS] <= 0:
        usd[n] = 0.0
    unit = max(1e-9, begin_usd_least) if rentable else 1.0
    return unit, slack


@njit(cache=True, error_model="numpy")
def _weigh_all(
    clusters: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    parameters: RoundParameters,
    usd: Floats,
    times: Floats,
    units: Floats,
    slacks: Floats,
) -> None:
    n_clusters = clusters.shape[1]
    absent_s, price_usd_hour, interruptions = np.zeros(n_clusters), np.empty(n_clusters), np.empty(n_clusters)
    for k in range(len(jobs)):
        for c in range(n_clusters):
            listed = np.float64(clusters[k, c, col.PRICE_USD_HOUR])
            price_usd_hour[c] = listed if listed > 0.0 else parameters.owned_usd_hour
            interruptions[c] = parameters.hazard * interruptions_per_s(clusters[k, c])
        units[k], slacks[k] = weigh_task(
            clusters[k],
            jobs[k, 0],
            pairs[k, 0],
            absent_s,
            price_usd_hour,
            interruptions,
            parameters,
            usd[k],
            times[k],
        )


def weigh(observations: Observation, parameters: RoundParameters) -> Choices:
    """The choices of the first job of each observation (leading axis n)."""
    clusters, jobs, pairs = (
        np.ascontiguousarray(observations[name], np.float32) for name in ("clusters", "jobs", "pairs")
    )
    n, n_offers = clusters.shape[:2]
    usd, times = np.empty((n, n_offers + 1)), np.empty((n, n_offers, N_TIMES))
    unit, slack = np.empty(n), np.empty(n)
    _weigh_all(clusters, jobs, pairs, parameters, usd, times, unit, slack)
    valid = observations["action_mask"][:, : n_offers + 1] != 0
    begin, finish, early, late, start = np.moveaxis(times, 2, 0)
    cost = np.where(valid, usd, LARGE)
    return Choices(valid, cost, unit, begin, finish, early, late, slack, start)


class RoundCost(Policy):
    """The expected cost alone: each epoch as late as is safe, two in a row on one instance."""

    name = "round_cost"

    def __init__(self, parameters: RoundParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else RoundParameters()

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions: the cheapest choices."""
        choices = weigh(observations, self.parameters)
        return np.asarray(choices.cost.argmin(1), np.int64)


# What `mtdqn` sees of each answer about a federated task: ratios that mean the same in any application.


TASK_FEATURES = (
    "owes",
    "idle",
    "is_server",
    "first_round",
    "rounds_left",
    "even_rounds_left",
    "last_round",
    "round_left",
    "round_length",
    "work",
    "slack",
    "slack_short",
    "slack_errors",
    "error",
    "progress",
    "cold_share",
    "others",
    "spot_share",
)
CHOICE_FEATURES = (
    "none",
    "here",
    "spot",
    "price",
    "price_on_demand",
    "launch",
    "early",
    "late",
    "wait_before",
    "up_ratio",
    "spell",
    "mean_up",
    "crowd",
    "cost",
)
N_TASK = len(TASK_FEATURES)
N_CHOICE = len(CHOICE_FEATURES)


def describe(observations: Observation, choices: Choices) -> tuple[FloatArray, FloatArray]:
    """(n, N_TASK) columns of each task and (n, C + 1, N_CHOICE) of each of its choices.

    Times are in units of what a start takes (launch and cold extra), money in what it costs.
    """
    clusters = observations["clusters"].astype(np.float64)
    job = observations["jobs"][:, 0].astype(np.float64)
    pair = observations["pairs"][:, 0].astype(np.float64)
    n, n_offers = clusters.shape[:2]
    rentable = pair[..., col.REQUEST] <= clusters[..., col.CAPACITY_MAX]
    start_s = np.where(rentable, choices.start_s, np.inf).min(1)
    start_s = np.where(np.isfinite(start_s), np.maximum(1.0, start_s), 1.0)
    executions = job[:, col.EXECUTIONS]
    whole = np.maximum(1.0, job[:, col.ROUND_S])
    price = clusters[..., col.PRICE_USD_HOUR]
    best_price = np.where(rentable, price, np.inf).min(1)
    best_price = np.where(np.isfinite(best_price), np.maximum(1e-6, best_price), 1.0)
    task = np.stack(
        [
            job[:, col.OWES],
            job[:, col.IDLE],
            job[:, col.IS_SERVER],
            job[:, col.COLD_S] <= 0,
            np.log1p(executions) / 3,
            np.where(executions % 2 == 0, 1.0, -1.0),
            executions <= 1,
            job[:, col.ROUND_LEFT_S] / start_s / 3,
            np.log(whole / start_s),
            job[:, col.STANDARD_S] / whole,
            np.clip(choices.slack_s / start_s / 3, -BOUND, BOUND),
            np.clip(choices.slack_s / start_s * 5, -2.0, 2.0),
            np.clip(choices.slack_s / (5.0 + 2 * job[:, col.TIME_ERROR_S]), -2.0, 2.0),
            5 * job[:, col.TIME_ERROR_S] / start_s,
            job[:, col.PROGRESS],
            job[:, col.COLD_S] / start_s,
            np.log1p(job[:, col.OTHERS_USD_HOUR] / best_price),
            (rentable & (clusters[..., col.IS_SPOT] > 0)).sum(1) / np.maximum(1, rentable.sum(1)),
        ],
        axis=1,
    )
    choice = np.zeros((n, n_offers + 1, N_CHOICE))
    choice[:, n_offers, 0] = 1.0
    unit_s = start_s[:, None]
    placed = choice[:, :n_offers]
    placed[..., 1] = pair[..., col.HERE]
    placed[..., 2] = clusters[..., col.IS_SPOT]
    placed[..., 3] = np.log(np.maximum(1e-6, price) / best_price[:, None])
    listed = np.maximum(1e-6, clusters[..., col.ON_DEMAND_USD_HOUR])
    placed[..., 4] = np.where(clusters[..., col.ON_DEMAND_USD_HOUR] > 0, price / listed, 0.0)
    placed[..., 5] = clusters[..., col.LAUNCH_S] / unit_s
    placed[..., 6] = choices.early_s / unit_s / 3
    placed[..., 7] = choices.late_s / unit_s
    placed[..., 8] = np.where(pair[..., col.HERE] > 0, choices.begin_s / unit_s, 0.0)
    placed[..., 9] = clusters[..., col.UP_RATIO]
    placed[..., 10] = np.log1p(clusters[..., col.SPELL_S] / 600) / 3
    placed[..., 11] = np.log1p(clusters[..., col.MEAN_UP_S] / 600) / 3
    placed[..., 12] = clusters[..., col.USED] / np.maximum(1.0, clusters[..., col.CAPACITY_MAX])
    least = np.where(choices.valid, choices.cost, np.inf).min(1)
    choice[..., 13] = np.clip((choices.cost - least[:, None]) / choices.unit[:, None], 0.0, BOUND)
    return bounded(task), bounded(choice)


def question(observations: Observation) -> Question:
    """What the rule expects, and what the network reads."""
    choices = weigh(observations, RoundParameters())
    return Question(choices.valid, choices.cost, choices.unit, *describe(observations, choices))
