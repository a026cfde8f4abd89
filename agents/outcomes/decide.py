"""One decision, compiled: what may be chosen, what the networks say of it, and which choice is taken."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.outcomes.features import N_FEATURES, N_STATE, describe_choice, describe_state
from agents.outcomes.forward import HEADS, Sizes, evaluate, n_inputs
from agents.rules import expected_cost
from agents.rules.choice import NO_ACTION, flat_action, is_valid, row_of, urgent_job
from agents.rules.compiled import compiled
from agents.rules.expectation import OWNED_POWER, expected_parts, total_usd
from envs.simulation import columns as col
from envs.simulation.snapshot import Category, ObservationArrays

MANY_OFFERS = 20.0
"""With at least this many rented offers the margin is used as configured."""
MOST_SCARCE = 8.0
"""The factor on the margin where two offers or fewer can be rented."""
LEAST_SCALE = 0.02
"""USD that a decision is about at least."""


class Weighing(NamedTuple):
    """What the objective charges, and how much better than the rule's choice another one must look.

    Attributes:
        miss_usd: a missed deadline of a one-shot job.
        batch_miss_usd: a late batch of a stream.
        delay_usd_hour: an hour of delay.
        money: a USD.
        owned_usd_hour: an executor-hour of an owned cluster that is always full.
        margin: of the scale; up to `MOST_SCARCE` times as much where few offers can be rented.
        doubt: of the standard error of the networks' difference between the two choices.
    """

    miss_usd: float
    batch_miss_usd: float
    delay_usd_hour: float
    money: float
    owned_usd_hour: float
    margin: float
    doubt: float


class Label(NamedTuple):
    """What is kept of decisions to learn from. N rows.

    Attributes:
        features: (N, n_inputs) of the choice that was taken.
        expected: (N, 4) what the rule expected of it: USD, delay hours, owned hours, misses.
        scale: (N,) USD that the decision was about; 0 where there is nothing to learn from it.
        left: (N,) deadlines that could be missed; 0 without one.
    """

    features: NDArray[np.float32]
    expected: NDArray[np.float64]
    scale: NDArray[np.float64]
    left: NDArray[np.float64]


@compiled
def capacity_price(obs: ObservationArrays, rule: NDArray[np.float64]) -> float:
    """Worth of an owned executor-hour to other jobs, as a share of what it is worth when all are in use."""
    busiest = 0.0
    for c in range(obs.clusters.shape[0]):
        if obs.clusters[c, col.QUEUES] != 0.0:
            busiest = max(busiest, float(obs.clusters[c, col.MEAN_OCCUPATION]))
    return float(busiest ** rule[OWNED_POWER])


@compiled
def rented_offers(obs: ObservationArrays) -> float:
    """How many clusters are rented, whether they can be had now or not."""
    count = 0.0
    for c in range(obs.clusters.shape[0]):
        if obs.clusters[c, col.QUEUES] == 0.0:
            count += 1.0
    return count


@compiled
def deadlines_left(obs: ObservationArrays, job: int) -> float:
    """Deadlines that the job could miss; 0 without one."""
    if obs.jobs[job, col.HAS_DEADLINE] == 0.0:
        return 0.0
    if obs.jobs[job, col.CATEGORY] == Category.STREAMING.value:
        return max(1.0, float(obs.jobs[job, col.EXECUTIONS]))
    return 1.0


@njit(cache=True, error_model="numpy")
def decide(
    obs: ObservationArrays,
    rule: NDArray[np.float64],
    vectors: NDArray[np.float32],
    sizes: Sizes,
    weighing: Weighing,
    explore: float,
    row: int,
    label: Label,
    values: NDArray[np.float64],
) -> int:
    """The flat action for the most urgent job; NO_ACTION if no job is open.

    Args:
        obs: one observation.
        rule: parameters of `expected_cost`.
        vectors: (M, network_size) the networks; M = 0 follows the rule.
        sizes: of the networks.
        weighing: prices and margins.
        explore: in [0, 1): which of the candidates to take; negative: the best.
        row: of `label`.
        label: row `row` is filled.
        values: (C + 1, 5) filled with minus the expected own misses (in units of one of a one-shot job), 0,
            delay hours, USD and owned hours of each candidate, the latter as far as owned clusters are full,
            so that the objective's prices give what candidates are compared by; NaN where the choice is none.
    """
    n_clusters = obs.clusters.shape[0]
    label.scale[row] = 0.0
    values[:] = np.nan
    job = urgent_job(obs)
    if job < 0:
        return NO_ACTION
    if obs.jobs[job, col.CATEGORY] == Category.FEDERATED.value:
        return expected_cost.choose_for(obs, job, rule)
    left = deadlines_left(obs, job)
    streaming = obs.jobs[job, col.CATEGORY] == Category.STREAMING.value
    prices = np.empty(4)
    busy = capacity_price(obs, rule)
    prices[0], prices[1] = weighing.money, weighing.delay_usd_hour
    prices[2] = weighing.owned_usd_hour * busy
    prices[3] = weighing.batch_miss_usd if streaming else weighing.miss_usd
    parts, given = np.empty((n_clusters + 1, 4)), np.empty((n_clusters + 1, 4))
    usd = np.full(n_clusters + 1, np.inf)
    best, lowest = -1, np.inf
    for c in range(n_clusters):
        if is_valid(obs, job, c):
            expected = expected_parts(obs, job, c, 0.0, rule)
            usd[c] = total_usd(obs, job, c, expected, rule)
            given[c] = expected
            if usd[c] < lowest:
                best, lowest = c, usd[c]
    if best < 0:
        return flat_action(obs, job, -1)
    rules_choice, waiting, place, wait_s = best, np.inf, -1, 0.0
    if is_valid(obs, job, -1):
        waiting, place, wait_s = expected_cost.waiting_option(obs, job, rule)
        if place >= 0:
            given[n_clusters] = expected_parts(obs, job, place, wait_s, rule)
        if waiting <= lowest:
            rules_choice = n_clusters
    usd[n_clusters] = waiting
    scale = LEAST_SCALE + max(0.0, min(lowest, waiting))
    features = np.empty((n_clusters + 1, n_inputs(sizes)), np.float32)
    choices = np.empty(n_clusters + 1, np.int64)
    describe_state(obs, job, scale, features[0, :N_STATE])
    n = 0
    for c in range(n_clusters + 1):
        none = c == n_clusters
        where, after_s = (place, wait_s) if none else (c, 0.0)
        if where < 0 or usd[c] == np.inf or (not none and usd[c] > lowest + scale):
            continue
        if not none and obs.pairs[job, c, col.FITS] == 0.0 and c != rules_choice:
            continue  # how long a queue takes is hard to foresee: only where the rule would wait in it
        parts[n] = given[c]
        features[n, :N_STATE] = features[0, :N_STATE]
        describe_choice(
            obs, job, where, after_s, none, parts[n], prices, usd[c], lowest, waiting, scale, rule,
            features[n, N_STATE:N_FEATURES],
        )  # fmt: skip
        if sizes.lstm > 0:
            features[n, N_FEATURES:] = obs.occupation[where]
        choices[n] = c
        n += 1
    taken = 0
    for k in range(n):
        if choices[k] == rules_choice:
            taken = k
    if vectors.shape[0] > 0 and n > 1:
        taken = best_of(
            vectors,
            sizes,
            weighing,
            features,
            n,
            parts,
            prices,
            left,
            streaming,
            scale,
            taken,
            choices,
            rented_offers(obs),
            values,
        )
    if explore >= 0.0:
        taken = int(explore * n)
    label.features[row] = features[taken]
    label.expected[row] = parts[taken]
    label.scale[row] = scale
    label.left[row] = left
    return flat_action(obs, job, choices[taken] if choices[taken] < n_clusters else -1)


@njit(cache=True, error_model="numpy")
def best_of(
    vectors: NDArray[np.float32],
    sizes: Sizes,
    weighing: Weighing,
    features: NDArray[np.float32],
    n: int,
    parts: NDArray[np.float64],
    prices: NDArray[np.float64],
    left: float,
    streaming: bool,
    scale: float,
    rules_choice: int,
    choices: NDArray[np.int64],
    rented: float,
    values: NDArray[np.float64],
) -> int:
    """The candidate with the lowest expected cost, unless it is hardly better than the rule's.

    Another choice must be better by `margin` of the scale, and by `doubt` times the standard error of the
    difference, which is seen from the networks of the ensemble. Where few offers can be rented the margin is
    larger: there a choice takes what others need, which a job's own outcome does not show.
    Fills the rows of `values`.
    """
    members = vectors.shape[0]
    cost = np.empty((members, n))
    outputs = np.empty((n, HEADS), np.float32)
    for k in range(n):
        values[choices[k]] = 0.0
    for m in range(members):
        evaluate(vectors[m], sizes, features[:n], outputs)
        for k in range(n):
            money = parts[k, 0] + scale * outputs[k, 0]
            delay = parts[k, 1] + scale * outputs[k, 1] / max(1e-9, weighing.delay_usd_hour)
            owned = parts[k, 2] + scale * outputs[k, 2] / max(1e-9, weighing.owned_usd_hour)
            misses = left / (1.0 + math.exp(-min(30.0, max(-30.0, outputs[k, 3]))))
            cost[m, k] = prices[0] * money + prices[1] * delay + prices[2] * owned + prices[3] * misses
            unit = weighing.batch_miss_usd / weighing.miss_usd if streaming else 1.0
            values[choices[k], 0] -= misses * unit / members
            values[choices[k], 2] -= delay / members
            values[choices[k], 3] -= money / members
            values[choices[k], 4] -= owned * prices[2] / max(1e-9, weighing.owned_usd_hour) / members
    best, gain = rules_choice, 0.0
    scarcity = min(MOST_SCARCE, max(1.0, MANY_OFFERS / max(1.0, rented)))
    for k in range(n):
        if k == rules_choice:
            continue
        mean, square = 0.0, 0.0
        for m in range(members):
            difference = cost[m, rules_choice] - cost[m, k]
            mean += difference / members
            square += difference * difference / members
        error = math.sqrt(max(0.0, square - mean * mean) / max(1, members - 1))
        mean -= weighing.margin * scarcity * scale + weighing.doubt * error
        if mean > gain:
            best, gain = k, mean
    return best


@njit(cache=True, error_model="numpy", nogil=True)
def decide_rows(
    batch: ObservationArrays,
    rows: NDArray[np.int64],
    rule: NDArray[np.float64],
    vectors: NDArray[np.float32],
    sizes: Sizes,
    weighing: Weighing,
    explore: NDArray[np.float64],
    label: Label,
    actions: NDArray[np.int64],
) -> None:
    """Fill actions (n,) for some rows of a batch, and row k of the label with what was decided."""
    values = np.empty((batch.clusters.shape[1] + 1, 5))
    for k in range(rows.shape[0]):
        actions[k] = decide(
            row_of(batch, rows[k]), rule, vectors, sizes, weighing, explore[k], k, label, values
        )
