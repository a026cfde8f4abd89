"""What the network sees of a choice: the job, the market, the place, and what a rule expects there.

Numbers are logarithms, ratios or shares, so that one network serves any set of offers, prices and job sizes.
"None for now" is described by the best place to be had later and the wait until then (see
`agents.rules.expected_cost`), a running job's by the place where it is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.rules.choice import is_valid
from spotweave.agents.rules.expectation import AWS, interruption_rate
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.snapshot import Category, ObservationArrays

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
