"""What `mtdqn` sees of each answer about a step of a workflow."""

from __future__ import annotations

import numpy as np

from spotweave.agents.policy import Question, bounded
from spotweave.agents.workflows.online.cost import Choices, WorkflowParameters, seen, weigh
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import FloatArray, Observation

STEP_FEATURES = (
    "idle",
    "slack",
    "path",
    "due",
    "steps_left",
    "behind",
    "round",
    "free",
    "launch",
    "data",
    "renting",
    "spot_up",
)
CHOICE_FEATURES = (
    "none",
    "owned",
    "spot",
    "here",
    "rented",
    "launches",
    "moves",
    "egress",
    "price",
    "delay",
    "pressure",
    "risk",
    "up_ratio",
    "margin",
    "cost",
)
N_STEP, N_CHOICE = len(STEP_FEATURES), len(CHOICE_FEATURES)


def describe(choices: Choices) -> tuple[FloatArray, FloatArray]:
    """(n, N_STEP) columns of each step and (n, C + 1, N_CHOICE) of each of its choices.

    Times are in units of a launch and the step's run; money in what the step costs where it is cheapest.
    """
    _, clusters, job, pair, idle = choices.shown
    n, count = clusters.shape[:2]
    launch_s = clusters[..., col.LAUNCH_S].max(1)
    unit_s = np.maximum(60.0, launch_s + job[:, col.STANDARD_S])
    spot = clusters[..., col.IS_SPOT] > 0
    slack_s = job[:, col.SLACK_S]
    step = np.stack(
        [
            idle,
            np.log1p(np.maximum(0.0, slack_s) / unit_s) / 2,
            np.log1p(job[:, col.DURATION_S] / unit_s) / 2,
            np.log1p(choices.due_s / unit_s) / 2,
            np.log1p(job[:, col.EXECUTIONS]) / 3,
            np.log1p(job[:, col.BACKLOG]) / 2,
            np.log1p(job[:, col.ROUND_S] / unit_s) / 2,
            np.log1p(job[:, col.ROUND_LEFT_S] / unit_s) / 2,
            launch_s / unit_s,
            np.log1p(job[:, col.DATA_GB]) / 4,
            np.log1p(job[:, col.OTHERS_USD_HOUR]) / 2,
            (spot * clusters[..., col.AVAILABLE]).sum(1) / np.maximum(1, spot.sum(1)),
        ],
        axis=1,
    )
    choice = np.zeros((n, count + 1, N_CHOICE))
    choice[:, count, 0] = 1.0
    shown, wide, unit = choice[:, :count], unit_s[:, None], choices.unit[:, None]
    price = clusters[..., col.PRICE_USD_HOUR]
    dearest = np.maximum(price.max(1), 1e-6)[:, None]
    shown[..., 1] = clusters[..., col.PROVIDER] == 0
    shown[..., 2] = spot
    shown[..., 3] = pair[..., col.HERE]
    shown[..., 4] = clusters[..., col.CAPACITY_NORMAL] > 0
    shown[..., 5] = clusters[..., col.LAUNCH_S] / wide
    shown[..., 6] = pair[..., col.TRANSFER_S] / wide
    shown[..., 7] = pair[..., col.EGRESS_USD] / unit
    shown[..., 8] = price / dearest
    shown[..., 11] = choices.risk
    shown[..., 12] = clusters[..., col.UP_RATIO]
    end_s = choices.end_s
    choice[..., 9] = (end_s - job[:, [col.STANDARD_S]]) / wide
    choice[..., 10] = choice[..., 9] * wide / choices.due_s[:, None]
    choice[..., 13] = (slack_s[:, None] - end_s) / wide / 3
    least = np.where(choices.valid, choices.cost, np.inf).min(1)
    choice[..., 14] = (choices.cost - least[:, None]) / unit
    return bounded(step), bounded(choice)


def question(observations: Observation) -> Question:
    """What the rule expects, and what the network reads."""
    choices = weigh(seen(observations), WorkflowParameters())
    return Question(choices.valid, choices.cost, choices.unit, *describe(choices))
