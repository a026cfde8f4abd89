"""What each answer about a task of a bag is expected to cost, and what `mtdqn` sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spotweave.agents.policy import Policy, Question, bounded
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.snapshot import FloatArray, Observation

_HOUR_S = 3600.0


class BagParameters(NamedTuple):
    """How the expected cost weighs time."""

    # USD that a second of makespan costs, for each USD that all spot VMs, as dear as the dearest, cost in a
    # second (the scale of Eq. 8.1). 1 is omega = 0.5
    time_price: float = 0.15
    keep_share: float = 1.0  # share of what it costs to keep an empty VM that counts


@dataclass(frozen=True)
class Choices:
    """n decisions about one task each; C places of VMs, then "none for now". Seconds and USD."""

    valid: Bools  # (n, C + 1)
    cost: Floats  # (n, C + 1) expected USD
    unit: Floats  # (n,) what running the task costs where it is cheapest, a measure of all costs
    end_s: Floats  # (n, C + 1) from now until the task would end
    risk: Floats  # (n, C + 1) chance that the VM hibernates before
    time_usd_s: Floats  # (n,) USD that a second of makespan costs


def weigh(observations: Observation, parameters: BagParameters) -> Choices:
    """The expected cost of every choice.

    A task costs its share of a VM while it runs, and of its launch if the VM is new, and by how much it
    lengthens the makespan, ending after all others. "None" leaves the task where it is: on a VM that
    hibernates it ends after the mean time until the type resumes, at the deadline if that never happens.
    Keeping an empty VM costs its price until the end of its cycle.
    """
    clusters = observations["clusters"].astype(np.float64)
    job = observations["jobs"][:, 0].astype(np.float64)
    pair = observations["pairs"][:, 0].astype(np.float64)
    n, count = clusters.shape[:2]
    rows = np.arange(n)
    valid = observations["action_mask"].astype(bool)
    spot = clusters[..., col.IS_SPOT] > 0
    cores, usd_s = clusters[..., col.CAPACITY_MAX], clusters[..., col.PRICE_USD_HOUR] / _HOUR_S
    dearest = np.where(spot, cores * usd_s, 0.0).max(1)
    time_usd_s = parameters.time_price * dearest * spot.sum(1)
    rate = np.where(
        spot & (clusters[..., col.MEAN_UP_S] > 0), 1 / np.maximum(clusters[..., col.MEAN_UP_S], 1), 0.0
    )
    work_s, launch_s = pair[..., col.EXECUTION_S], clusters[..., col.LAUNCH_S]
    new = clusters[..., col.CAPACITY_NORMAL] == 0
    end_s = launch_s + pair[..., col.TRANSFER_S] + work_s
    usd = usd_s * (work_s + np.where(new, launch_s, 0.0))
    # Where it is: after the VM has resumed, if it is hibernated.
    here = pair[..., col.HERE] > 0
    place = here.argmax(1)
    placed = here.any(1)
    up_ratio = clusters[..., col.UP_RATIO]
    down_s = np.where(up_ratio > 0, (1 - up_ratio) / np.maximum(up_ratio * rate, 1e-9), np.inf)
    asleep = here & (clusters[..., col.AVAILABLE] == 0)
    wait_s = np.minimum(down_s, np.maximum(0.0, job[:, [col.SLACK_S]] - work_s))
    end_s = np.where(asleep, wait_s + end_s, end_s)
    risk = -np.expm1(-rate * end_s)
    late_s = np.maximum(0.0, end_s - job[:, [col.ROUND_LEFT_S]])
    cost = usd + time_usd_s[:, None] * late_s
    idle = job[:, col.IDLE] > 0
    kept = parameters.keep_share * usd_s * cores * work_s
    cost = np.where(idle[:, None] & here, kept, cost)
    none = np.where(placed & ~idle, cost[rows, place], 0.0)
    unit = np.where(valid[:, :count], usd_s * np.maximum(work_s, 1.0), np.inf).min(1)
    unit = np.where(np.isfinite(unit), unit, 1.0)
    extended = [np.concatenate([one, one[rows, place][:, None]], 1) for one in (end_s, risk)]
    return Choices(
        valid, np.concatenate([cost, none[:, None]], 1), unit, extended[0], extended[1], time_usd_s
    )


class BagCost(Policy):
    """Takes the choice with the lowest expected cost (see `agents.bags.cost`)."""

    name = "bag_cost"

    def __init__(self, parameters: BagParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else BagParameters()

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions. Raises ValueError if an observation has no valid action."""
        choices = weigh(observations, self.parameters)
        if not choices.valid.any(1).all():
            row = int(np.argmin(choices.valid.any(1)))
            raise ValueError(f"rule {self.name}: observation {row} offers no valid action, expected a task")
        return np.asarray(np.where(choices.valid, choices.cost, np.inf).argmin(1), np.int64)


# What `mtdqn` sees of each answer about a task of a bag.


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
