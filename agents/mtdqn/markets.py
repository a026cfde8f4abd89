"""How `mtdqn` sees jobs in a market: offers near the best that the rule `expected_cost` knows, in USD."""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from spotweave.agents.mtdqn.decide import (
    GREEDY,
    Acting,
    Choices,
    Exploring,
    Label,
    Sizes,
    evaluate,
    mean_at,
    occupation_at,
    pick,
    room_for,
)
from spotweave.agents.mtdqn.view import View
from spotweave.agents.rules import expected_cost
from spotweave.agents.rules.choice import NO_ACTION, flat_action, is_valid, row_of, urgent_job
from spotweave.agents.rules.expectation import (
    AWS,
    OWNED_POWER,
    ExpectedCostParameters,
    expected_parts,
    interruption_rate,
    missed_at_once,
    total_usd,
)
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner, linked
from spotweave.envs.simulation.snapshot import Category, ObservationArrays

OWN_MISSES, DELAY, MONEY, OWNED, MUTUAL = 0, 1, 2, 3, 4
"""Values of a choice: own misses, hours of delay, USD, owned hours, and what it does to all others."""
SCALE, LEFT, BUSY = 0, 1, 2
"""Facts: what the decision is about in USD, missed deadlines at stake, worth of owned capacity."""
BATCH_SHARE = 0.2  # a late batch of a stream counts as this share of a missed deadline
DELAY_USD_HOUR, OWNED_USD_HOUR, MISS_USD = 0.25, 0.36, 25.0
"""Units in which the network learns hours of delay, owned hours and (of others) missed deadlines."""
NEED_EXECUTOR_S = 36_000.0  # executor-seconds that count as a need of 1
MANY_OFFERS = 20.0  # with at least this many rented offers the margin is used as configured
MOST_SCARCE = 8.0  # the factor on the margin where two offers or fewer can be rented
# A choice counts a missed deadline 1 + CAUTION / `scarcity` times
# (docs/results/attempts.md#what-a-missed-deadline-counts).
CAUTION = 1.0
LEAST_SCALE = 0.02  # USD that a decision is about at least
LOWEST, HIGHEST = -3.0, 8.0
"""Bounds of the targets in units of a decision's scale: a few disasters must not outweigh all else."""


@inner
def capacity_price(obs: ObservationArrays, rule: NDArray[np.float64]) -> float:
    """Worth of an owned executor-hour to other jobs, as a share of what it is worth when all are in use."""
    busiest = 0.0
    for c in range(obs.clusters.shape[0]):
        if obs.clusters[c, col.QUEUES] != 0.0:
            busiest = max(busiest, float(obs.clusters[c, col.MEAN_OCCUPATION]))
    return float(busiest ** rule[OWNED_POWER])


@inner
def scarcity(obs: ObservationArrays) -> float:
    """Factor on the margin: where few offers can be rented, a choice takes what others need."""
    rented = 0.0
    for c in range(obs.clusters.shape[0]):
        if obs.clusters[c, col.QUEUES] == 0.0:
            rented += 1.0
    return min(MOST_SCARCE, max(1.0, MANY_OFFERS / max(1.0, rented)))


@inner
def deadlines_left(obs: ObservationArrays, job: int, rule: NDArray[np.float64]) -> float:
    """Deadlines that could be missed with the job's, in those of a one-shot job; 0 without one."""
    if obs.jobs[job, col.HAS_DEADLINE] == 0.0:
        return 0.0
    if obs.jobs[job, col.CATEGORY] == Category.STREAMING.value:
        return BATCH_SHARE * max(1.0, float(obs.jobs[job, col.EXECUTIONS]))
    return missed_at_once(obs, job, rule)


@inner
def executor_seconds(obs: ObservationArrays, job: int, place: int) -> float:
    """What the job needs there."""
    row, pair = obs.jobs[job], obs.pairs[job, place]
    held = pair[col.EXECUTION_S]
    if row[col.CATEGORY] == Category.STREAMING.value:
        held = row[col.EXECUTIONS] * row[col.PERIOD_S]
    return float(pair[col.REQUEST] * held)


@linked()
def weigh(obs: ObservationArrays, job: int, acting: Acting, choices: Choices) -> tuple[int, int]:
    """Fill the choices that the rule finds nearly as good as its best.

    Returns:
        How many and which one is the rule's own; (0, -1) if the job can only wait.
    """
    n_clusters = obs.clusters.shape[0]
    rule, sizes = acting.rule, acting.sizes
    usd = np.full(n_clusters + 1, np.inf)
    given = np.empty((n_clusters + 1, 4))
    best, lowest = -1, np.inf
    for c in range(n_clusters):
        if is_valid(obs, job, c) and not expected_cost.gives_way(obs, job, c, rule):
            expected = expected_parts(obs, job, c, 0.0, rule)
            usd[c] = total_usd(obs, job, c, expected, rule)
            given[c] = expected
            if usd[c] < lowest:
                best, lowest = c, usd[c]
    if best < 0:
        return 0, -1
    rules_choice, waiting, place, wait_s = best, np.inf, -1, 0.0
    if is_valid(obs, job, -1):
        waiting, place, wait_s = expected_cost.waiting_option(obs, job, rule)
        if place >= 0:
            given[n_clusters] = expected_parts(obs, job, place, wait_s, rule)
        if waiting <= lowest:
            rules_choice = n_clusters
    usd[n_clusters] = waiting
    scale = LEAST_SCALE + max(0.0, min(lowest, waiting))
    busy = capacity_price(obs, rule)
    streaming = obs.jobs[job, col.CATEGORY] == Category.STREAMING.value
    prices = np.empty(4)
    prices[0], prices[1] = 1.0, acting.weights[DELAY]
    prices[2] = acting.weights[OWNED] * busy
    prices[3] = acting.weights[OWN_MISSES] * (BATCH_SHARE if streaming else missed_at_once(obs, job, rule))
    choices.facts[SCALE], choices.facts[BUSY] = scale, busy
    choices.facts[LEFT] = deadlines_left(obs, job, rule)
    state = np.empty(N_STATE, np.float32)
    describe_state(obs, job, scale, state)
    n, guided = 0, 0
    for c in range(n_clusters + 1):
        none = c == n_clusters
        where, after_s = (place, wait_s) if none else (c, 0.0)
        if where < 0 or usd[c] == np.inf or (not none and usd[c] > lowest + scale):
            continue
        if not none and obs.pairs[job, c, col.FITS] == 0.0 and c != rules_choice:
            continue  # how long a queue takes is hard to foresee: only where the rule would wait in it
        columns = choices.columns[n]
        describe_choice(
            obs, job, where, after_s, none, given[c], prices, usd[c], lowest, waiting, scale, rule,
            columns[:N_CHOICE],
        )  # fmt: skip
        columns[N_CHOICE : N_CHOICE + N_STATE] = state
        if sizes.lstm > 0:
            columns[occupation_at(sizes) :] = obs.occupation[where]
        choices.known[n, OWN_MISSES] = 0.0
        choices.known[n, DELAY] = -given[c, 1]
        choices.known[n, MONEY] = -given[c, 0]
        choices.known[n, OWNED] = -given[c, 2]
        choices.needs[n] = executor_seconds(obs, job, where) / NEED_EXECUTOR_S
        choices.targets[n], choices.open[n], choices.proper[n] = c, True, True
        if c == rules_choice:
            guided = n
        n += 1
    if sizes.mutual > 0:
        mean = np.zeros(N_CHOICE, np.float32)
        for k in range(n):
            mean += choices.columns[k, :N_CHOICE] / np.float32(n)
        choices.columns[:n, mean_at(sizes) : occupation_at(sizes)] = mean
    if len(acting.vector) > 0:
        evaluate(acting.vector, sizes, choices.columns[:n], choices.needs[:n], choices.values[:n])
    else:
        choices.values[:n] = 0.0
    left = choices.facts[LEFT]
    for k in range(n):
        values, known = choices.values[k], choices.known[k]
        logit = min(30.0, max(-30.0, values[OWN_MISSES]))
        values[OWN_MISSES] = -left / (1.0 + math.exp(-logit))
        values[DELAY] = known[DELAY] - scale * values[DELAY] / DELAY_USD_HOUR
        values[MONEY] = known[MONEY] - scale * values[MONEY]
        values[OWNED] = busy * (known[OWNED] - scale * values[OWNED] / OWNED_USD_HOUR)
        values[MUTUAL] = values[MUTUAL] / MISS_USD
    return n, guided


@njit(cache=True, error_model="numpy", nogil=True)
def decide_rows(
    batch: ObservationArrays,
    rows: NDArray[np.int64],
    acting: Acting,
    exploring: Exploring,
    label: Label,
    shown: NDArray[np.float32],
    actions: NDArray[np.int64],
) -> None:
    """See `agents.mtdqn.view.DecideRows`."""
    n_clusters = batch.clusters.shape[1]
    keeps = label.tried.shape[0] > 0
    choices = room_for(n_clusters + 1, acting.sizes)
    for k in range(rows.shape[0]):
        row = k if keeps else -1
        obs = row_of(batch, rows[k])
        job = urgent_job(obs)
        if job < 0:
            actions[k] = NO_ACTION
            continue
        # Tasks that train in rounds are left to the guide.
        rounds = obs.jobs[job, col.CATEGORY] == Category.FEDERATED.value
        if rounds or (acting.follow and not keeps):
            actions[k] = expected_cost.choose_for(obs, job, acting.rule)
            continue
        n, guided = weigh(obs, job, acting, choices)
        if n == 0:
            actions[k] = flat_action(obs, job, -1)
            continue
        for choice in range(n if shown.shape[0] > 0 else 0):
            shown[k, choices.targets[choice]] = choices.values[choice]
        how = GREEDY if exploring.spent[k, job] else exploring.how[k]
        scarce = scarcity(obs)
        choices.values[:n, OWN_MISSES] *= 1.0 + CAUTION / scarce
        least = acting.margin * scarce * choices.facts[SCALE]
        draw, take = exploring.draws[k], exploring.take[k]
        taken = pick(choices, n, guided, least, np.inf, acting, how, draw, take, label, row)
        target = choices.targets[taken]
        actions[k] = flat_action(obs, job, target if target < n_clusters else -1)


class MarketView(View):
    """Jobs on offers and owned clusters whose guide is the rule `expected_cost`.

    Args:
        lstm: see `Sizes`.
        own: likewise.
        networks: likewise.
        mutual: likewise.
    """

    block_jobs = 1_000_000  # streams stay for days: whole episodes
    aftermath = 3600.0

    def __init__(self, lstm: int, own: int, networks: int, mutual: int) -> None:
        self.sizes = Sizes(N_CHOICE, N_STATE, MUTUAL, lstm, own, networks, mutual, scaled=1)
        self.rule = ExpectedCostParameters().vector()
        self.decide_rows = decide_rows

    def of_heads(self, weights: tuple[float, ...]) -> NDArray[np.float32]:
        """What values are multiplied by so that they are in USD."""
        misses, mutual, delay, money, owned = weights
        return np.array([misses, delay, money, owned, mutual], np.float32)

    def reward_unit(self, weights: tuple[float, ...]) -> float:
        """The mutual value is learned in USD."""
        return 1.0

    def targets(
        self, label: Label, side: NDArray[np.int64], outcomes: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """The share of its own deadlines left that were missed (NaN without any), and what the rest came to.

        Of delay, money and owned hours it is what exceeded the rule's estimate, in units of the decision's
        scale and of `DELAY_USD_HOUR` and `OWNED_USD_HOUR`.
        """
        chosen = np.arange(len(side)), side
        columns = label.columns[chosen][:, N_CHOICE : N_CHOICE + N_STATE]
        # Of a one-shot job the rule counts all time, the world what exceeds the standard time of the work.
        hours = np.expm1(columns[:, STANDARD]) * (1.0 - columns[:, PROGRESS]) / 60.0
        streaming = columns[:, STREAMING] > 0
        expected = -label.known[chosen].astype(np.float64)
        expected[:, DELAY] -= np.where(streaming, 0.0, hours)
        misses, _, delay, money, owned = outcomes.T
        scale, left = label.facts[:, SCALE], label.facts[:, LEFT]
        found = np.empty((len(side), MUTUAL), np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.clip(misses / np.where(streaming, left, 1.0), 0.0, 1.0)
        found[:, OWN_MISSES] = np.where(left > 0, share, np.nan)
        found[:, DELAY] = DELAY_USD_HOUR * (delay - expected[:, DELAY]) / scale
        found[:, MONEY] = (money - expected[:, MONEY]) / scale
        found[:, OWNED] = OWNED_USD_HOUR * (owned - expected[:, OWNED]) / scale
        found[:, DELAY:] = found[:, DELAY:].clip(LOWEST, HIGHEST)
        return found

    def losses(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Squared error of the total and of each part, and cross-entropy of the misses."""
        beyond = outputs[..., DELAY:] - targets[:, DELAY:]
        # What matters is the sum; the parts are learned as well, so that they can be weighed otherwise.
        usd = beyond.sum(-1).square().mean() + 0.5 * beyond.square().sum(-1).mean()
        has_deadline = ~targets[:, OWN_MISSES].isnan()
        misses = outputs[..., OWN_MISSES]
        share = targets[:, OWN_MISSES].nan_to_num().expand_as(misses)
        entropy = binary_cross_entropy_with_logits(misses, share, reduction="none")
        return {"own_misses": (entropy * has_deadline).mean(), "usd": usd}

    def own_worth(self, outputs: Tensor, known: Tensor, facts: Tensor, weights: Tensor) -> Tensor:
        """(...) weighed own values, in USD; as `View.own_worth`."""
        scale, left, busy = facts.unbind(-1)
        misses = -left * outputs[..., OWN_MISSES].sigmoid()
        delay = known[..., DELAY] - scale * outputs[..., DELAY] / DELAY_USD_HOUR
        money = known[..., MONEY] - scale * outputs[..., MONEY]
        owned = busy * (known[..., OWNED] - scale * outputs[..., OWNED] / OWNED_USD_HOUR)
        return torch.stack([misses, delay, money, owned], -1) @ weights[:MUTUAL]


# What the network sees of a choice: the job, the market, the place, and what a rule expects there.
#
# Numbers are logarithms, ratios or shares, so that one network serves any set of offers, prices and job
# sizes. "None for now" is described by the best place to be had later and the wait until then (see
# `agents.rules.expected_cost`), a running job's by the place where it is.


N_STATE = 27  # features that are the same for all choices of a decision
N_CHOICE = 36
STREAMING, STANDARD, PROGRESS = 0, 5, 8
"""Features that are 1 for a stream, log(1 + minutes of standard time), and the share of the work done."""

_GCP = 2.0


@inner
def logarithm(x: float) -> float:
    """log(1 + x), of what is never negative but for rounding."""
    return math.log1p(max(0.0, x))


@inner
def ratio(x: float, to: float, most: float) -> float:
    """The ratio x / to, within +-most; `to` is positive but for rounding."""
    return min(most, max(-most, x / max(1e-6, to)))


@inner
def describe_state(obs: ObservationArrays, job: int, scale: float, out: NDArray[np.float32]) -> None:
    """Fill out (N_STATE,): the job, the owned clusters, and how much capacity there is.

    Args:
        obs: one observation.
        job: row of the decided job.
        scale: USD that the decision is about.
        out: filled.
    """
    row = obs.jobs[job]
    streaming = row[col.CATEGORY] == Category.STREAMING.value
    out[STREAMING] = 1.0 if streaming else 0.0
    out[1] = 1.0 if row[col.HAS_DEADLINE] != 0.0 else 0.0
    out[2] = logarithm(obs.pairs[job, 0, col.REQUEST])
    out[3] = logarithm(row[col.EXECUTIONS] if streaming else 1.0)
    out[4] = logarithm(row[col.PERIOD_S] / 60.0)
    out[STANDARD] = logarithm(row[col.STANDARD_S] / 60.0)
    out[6] = logarithm(row[col.AGE_S] / 60.0)
    out[7] = logarithm(row[col.WAITED_S] / 60.0)
    out[PROGRESS] = row[col.PROGRESS]
    out[9] = min(5.0, row[col.INTERRUPTIONS])
    out[10] = min(5.0, row[col.MISSES])
    out[11] = min(8.0, row[col.BACKLOG])
    out[12] = logarithm(row[col.CHECKPOINT_INTERVAL_S] / 60.0)
    out[13] = logarithm(row[col.DATA_GB])
    out[14] = logarithm(row[col.CHECKPOINT_GB])
    out[15] = 1.0 if row[col.RUNNING] != 0.0 else 0.0
    out[16] = math.log(max(1e-4, scale))
    present, urgent = 0.0, 0.0
    for other in range(obs.jobs.shape[0]):
        if obs.jobs[other, col.PRESENT] != 0.0:
            present += 1.0
            urgent += 1.0 if obs.jobs[other, col.HAS_DEADLINE] != 0.0 else 0.0
    out[17] = present / obs.jobs.shape[0]
    out[18] = urgent / obs.jobs.shape[0]
    owned, owned_used, owned_halted, owned_mean = 0.0, 0.0, 0.0, 0.0
    spot, spot_up, valid, busy, rented = 0.0, 0.0, 0.0, 0.0, 0.0
    for c in range(obs.clusters.shape[0]):
        place = obs.clusters[c]
        if place[col.QUEUES] != 0.0:
            owned += place[col.CAPACITY_MAX]
            owned_used += place[col.USED]
            owned_halted += place[col.HALTED]
            owned_mean += place[col.MEAN_OCCUPATION] * place[col.CAPACITY_MAX]
        else:
            rented += 1.0
            busy += place[col.USED] / max(1.0, place[col.CAPACITY_MAX])
        if place[col.IS_SPOT] != 0.0:
            spot += 1.0
            spot_up += place[col.AVAILABLE]
        if is_valid(obs, job, c):
            valid += 1.0
    out[19] = logarithm(owned)
    out[20] = owned_used / max(1.0, owned)
    out[21] = min(3.0, owned_halted / max(1.0, owned))
    out[22] = owned_mean / max(1.0, owned)
    out[23] = logarithm(spot)
    out[24] = spot_up / max(1.0, spot)
    out[25] = logarithm(valid)
    out[26] = busy / max(1.0, rented)


@inner
def describe_choice(
    obs: ObservationArrays,
    job: int,
    place: int,
    wait_s: float,
    none: bool,
    parts: NDArray[np.float64],
    prices: NDArray[np.float64],
    usd: float,
    lowest: float,
    waiting: float,
    scale: float,
    rule: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """Fill out (N_CHOICE,): a place, when the job would get there, and what the rule expects of it.

    Args:
        obs: one observation.
        job: row of the decided job.
        place: the cluster.
        wait_s: seconds until then.
        none: whether the choice is "none for now".
        parts: (4,) what the rule expects there, see `expectation.expected_parts`.
        prices: (4,) USD of each of them.
        usd: the rule's total, risk of misses included.
        lowest: the least of all valid clusters.
        waiting: that of "none".
        scale: USD that the decision is about.
        rule: parameters of the rule.
        out: filled.
    """
    cluster, pair, row = obs.clusters[place], obs.pairs[job, place], obs.jobs[job]
    execution, period = float(pair[col.EXECUTION_S]), float(row[col.PERIOD_S])
    spot = cluster[col.IS_SPOT] != 0.0
    here = pair[col.HERE] != 0.0
    start_s = wait_s if here else wait_s + float(cluster[col.LAUNCH_S] + pair[col.TRANSFER_S])
    out[0] = 1.0 if none else 0.0
    out[1] = 1.0 if spot else 0.0
    out[2] = 1.0 if cluster[col.QUEUES] != 0.0 else 0.0
    out[3] = 1.0 if here else 0.0
    out[4] = 1.0 if cluster[col.PROVIDER] == AWS else 0.0
    out[5] = 1.0 if cluster[col.PROVIDER] == _GCP else 0.0
    out[6] = logarithm(wait_s / 60.0)
    out[7] = ratio(usd - min(lowest, waiting), scale, 8.0)
    out[8] = ratio(waiting - lowest, scale, 8.0)
    out[9] = ratio(parts[0], scale, 8.0)
    out[10] = ratio(parts[1] * prices[1], scale, 8.0)
    out[11] = ratio(parts[2] * prices[2], scale, 8.0)
    out[12] = ratio(parts[3] * prices[3], scale, 8.0)
    out[13] = min(8.0, parts[3])
    out[14] = 1.0 if pair[col.FITS] != 0.0 else 0.0
    capacity = max(1.0, float(cluster[col.CAPACITY_MAX]))
    out[15] = ratio(float(pair[col.FREE]), capacity, 2.0)
    out[16] = ratio(float(pair[col.REQUEST]), capacity, 2.0)
    out[17] = cluster[col.MEAN_OCCUPATION]
    out[18] = cluster[col.USED] / capacity
    out[19] = min(3.0, cluster[col.HALTED] / capacity)
    out[20] = 1.0 if cluster[col.AVAILABLE] != 0.0 else 0.0
    out[21] = cluster[col.UP_RATIO]
    out[22] = logarithm(cluster[col.MEAN_UP_S] / 600.0)
    out[23] = logarithm(cluster[col.SPELL_S] / 600.0) if spot else 0.0
    out[24] = logarithm(interruption_rate(obs, place, rule) * execution) if spot else 0.0
    out[25] = 1.0 if spot and cluster[col.SPELL_S] < 600.0 else 0.0
    out[26] = math.log(max(1e-3, cluster[col.PRICE_USD_HOUR]))
    out[27] = ratio(float(cluster[col.PRICE_USD_HOUR]), float(cluster[col.ON_DEMAND_USD_HOUR]), 3.0)
    out[28] = logarithm(start_s / 60.0)
    out[29] = logarithm(execution / 60.0)
    out[30] = ratio(execution, period, 3.0) if period > 0.0 else 0.0
    margin_s = float(row[col.SLACK_S]) - start_s - execution
    has_deadline = row[col.HAS_DEADLINE] != 0.0
    out[31] = ratio(margin_s, period if period > 0.0 else execution + 600.0, 4.0) if has_deadline else 4.0
    out[32] = 0.0 if here else ratio(float(pair[col.EGRESS_USD]), scale, 4.0)
    out[33] = ratio(float(cluster[col.NOTICE_S]), float(row[col.CHECKPOINT_GB]) + 2.0, 4.0)
    out[34] = ratio(usd - lowest, scale, 8.0)
    out[35] = logarithm(float(cluster[col.CAPACITY_MAX]))
