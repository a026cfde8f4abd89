"""What `mtdqn` sees of each answer about a task of a bag."""

from __future__ import annotations

import numpy as np

from spotweave.agents.bags.cost import BagParameters, Choices, weigh
from spotweave.agents.policy import Question, bounded
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import FloatArray, Observation

TASK_FEATURES = (
    "start",
    "asleep",
    "empty",
    "others_left",
    "slack",
    "work",
    "hibernates",
    "resumes",
    "progress",
    "renting",
)
CHOICE_FEATURES = (
    "none",
    "here",
    "spot",
    "new",
    "price",
    "wait",
    "end",
    "late",
    "late_usd",
    "risk",
    "risk_usd",
    "queue",
    "cost",
)
N_TASK, N_CHOICE = len(TASK_FEATURES), len(CHOICE_FEATURES)


def describe(observations: Observation, choices: Choices) -> tuple[FloatArray, FloatArray]:
    """(n, N_TASK) columns of each task and (n, C + 1, N_CHOICE) of each of its choices.

    Times are in units of a launch, or of the task's work where that is longer; money in what the task costs
    where it is cheapest.
    """
    clusters = observations["clusters"].astype(np.float64)
    job = observations["jobs"][:, 0].astype(np.float64)
    pair = observations["pairs"][:, 0].astype(np.float64)
    n, count = clusters.shape[:2]
    here = pair[..., col.HERE] > 0
    placed, idle = here.any(1), job[:, col.IDLE] > 0
    asleep = (here & (clusters[..., col.AVAILABLE] == 0)).any(1)
    unit_s = np.maximum(60.0, job[:, col.STANDARD_S])
    up_s = clusters[..., col.MEAN_UP_S].max(1)
    up_ratio = clusters[..., col.UP_RATIO].min(1)
    down_s = np.where(up_ratio > 0, up_s * (1 - up_ratio) / np.maximum(up_ratio, 1e-6), np.inf)
    task = np.stack(
        [
            ~placed,
            asleep,
            idle,
            job[:, col.ROUND_LEFT_S] / unit_s / 3,
            np.log1p(np.maximum(0.0, job[:, col.SLACK_S]) / unit_s) / 2,
            job[:, col.STANDARD_S] / 300,
            np.where(up_s > 0, 300 / np.maximum(up_s, 1.0), 0.0),
            300 / np.maximum(down_s, 1.0),
            job[:, col.PROGRESS],
            np.log1p(job[:, col.OTHERS_USD_HOUR]),
        ],
        axis=1,
    )
    choice = np.zeros((n, count + 1, N_CHOICE))
    choice[:, count, 0] = 1.0
    shown, wide = choice[:, :count], unit_s[:, None]
    price = clusters[..., col.PRICE_USD_HOUR]
    shown[..., 1] = here
    shown[..., 2] = clusters[..., col.IS_SPOT]
    shown[..., 3] = clusters[..., col.CAPACITY_NORMAL] == 0
    shown[..., 4] = np.log(np.maximum(1e-6, price) / np.maximum(1e-6, price.min(1))[:, None])
    shown[..., 5] = pair[..., col.TRANSFER_S] / wide
    shown[..., 11] = clusters[..., col.HALTED] / np.maximum(1.0, clusters[..., col.CAPACITY_MAX])
    left_s = job[:, [col.ROUND_LEFT_S]]
    late_s = np.maximum(0.0, choices.end_s - left_s)
    usd = choices.time_usd_s[:, None] / choices.unit[:, None]
    choice[..., 6] = (choices.end_s - left_s) / wide / 3
    choice[..., 7] = late_s / wide
    choice[..., 8] = usd * late_s / 3
    choice[..., 9] = choices.risk
    choice[..., 10] = usd * choices.risk * wide / 3
    least = np.where(choices.valid, choices.cost, np.inf).min(1)
    choice[..., 12] = (choices.cost - least[:, None]) / choices.unit[:, None]
    return bounded(task), bounded(choice)


def question(observations: Observation) -> Question:
    """What the rule expects, and what the network reads."""
    choices = weigh(observations, BagParameters())
    return Question(choices.valid, choices.cost, choices.unit, *describe(observations, choices))
