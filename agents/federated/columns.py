"""What `mtdqn` sees of each answer about a federated task: ratios that mean the same in any application."""

from __future__ import annotations

import numpy as np

from spotweave.agents.federated.cost import Choices, RoundParameters, weigh
from spotweave.agents.policy import BOUND, Question, bounded
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import FloatArray, Observation

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
