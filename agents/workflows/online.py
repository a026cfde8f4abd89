"""What each answer about a step of a workflow is expected to cost, and what `mtdqn` sees of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spotweave.agents.policy import Policy, Question, bounded
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.snapshot import FloatArray, Observation

# What the rules for workflows share: one step or one idle instance is asked about at a time.

HOUR_S = 3600.0


class Seen(NamedTuple):
    """n questions at C places, as float64."""

    valid: Bools  # (n, C + 1), "none for now" last
    clusters: Floats  # (n, C, columns)
    job: Floats  # (n, columns)
    pair: Floats  # (n, C, columns)
    idle: Bools  # (n,) whether an idle instance is asked about


def seen(observations: Observation) -> Seen:
    """The parts of observations that rules read."""
    job = observations["jobs"][:, 0].astype(np.float64)
    return Seen(
        observations["action_mask"].astype(bool),
        observations["clusters"].astype(np.float64),
        job,
        observations["pairs"][:, 0].astype(np.float64),
        job[:, col.IDLE] > 0,
    )


def idle_usd(shown: Seen) -> tuple[Floats, Floats]:
    """((n, C) USD for keeping an idle instance until it is wanted, (n,) for launching one then instead)."""
    usd_s = shown.clusters[..., col.PRICE_USD_HOUR] / HOUR_S
    here = shown.pair[..., col.HERE] > 0
    launch_usd = np.where(here, usd_s * shown.clusters[..., col.LAUNCH_S], 0.0).sum(1)
    return usd_s * shown.job[:, [col.ROUND_LEFT_S]], launch_usd


class WorkflowRule(Policy):
    """A rule that ranks the places for a step; an idle instance is kept if that costs less than a launch."""

    @abstractmethod
    def ranking(self, shown: Seen) -> Floats:
        """(n, C + 1): the valid answer with the least value is taken."""

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions. Raises ValueError if an observation has no valid action."""
        shown = seen(observations)
        if not shown.valid.any(1).all():
            row = int(np.argmin(shown.valid.any(1)))
            raise ValueError(f"rule {self.name}: observation {row} offers no valid action, expected a step")
        keep_usd, launch_usd = idle_usd(shown)
        kept = np.concatenate([keep_usd, launch_usd[:, None]], 1)
        value = np.where(shown.idle[:, None], kept, self.ranking(shown))
        return np.asarray(np.where(shown.valid, value, np.inf).argmin(1), np.int64)


class WorkflowParameters(NamedTuple):
    """How the expected cost weighs time. Chosen on validation episodes."""

    # cost of using up a step's whole time allowance, as a multiple of the on-demand premium over the cheapest
    # place; it grows with the square of the time used
    time_price: float = 1.0
    # a step's due is the share of its run in the longest path after it, to this power, of the time that may
    # be lost on that path,
    share: float = 0.3
    least: float = 0.5  # and at least this share of a launch and a run


MOST_USED = 3.0  # Dues used count up to this: beyond, the deadline is kept by the mask
REDO = 1.2  # a step may take up to this multiple of its expected time (`Conditions.runtime_error`)
NEVER_USD = 1e9


@dataclass(frozen=True)
class Choices:
    """n decisions about one step each; C places, then "none for now". Seconds and USD."""

    shown: Seen  # what was read
    cost: Floats  # (n, C + 1) expected USD
    unit: Floats  # (n,) what running the step costs where it is cheapest, a measure of all costs
    end_s: Floats  # (n, C + 1) from now until the step would end, if nothing is interrupted
    due_s: Floats  # (n,) the time that is the step's due
    risk: Floats  # (n, C) chance that the place is interrupted before

    @property
    def valid(self) -> Bools:
        """(n, C + 1) choices that may be taken."""
        return self.shown.valid


def weigh(shown: Seen, parameters: WorkflowParameters) -> Choices:
    """The expected cost of every choice.

    A place costs its price for launch, files and run, what moving the files costs, and with the chance of an
    interruption half of that again and the time of doing it again. Waiting costs the price where it could
    run next, and the time until all that is ready has ended on the instances that there are, so that about
    as many are rented as end it within its due; or the time until a spot offer is back. Keeping an idle
    instance costs its price until it is wanted, giving it back that of a launch.
    """
    _, clusters, job, pair, idle = shown
    usd_s = clusters[..., col.PRICE_USD_HOUR] / HOUR_S
    work_s = pair[..., col.EXECUTION_S]
    may = work_s > 0
    end_s = clusters[..., col.LAUNCH_S] + pair[..., col.TRANSFER_S] + work_s
    rented = may & (usd_s > 0)
    unit = np.where(rented, usd_s * work_s, np.inf).min(1)
    unit = np.where(np.isfinite(unit), unit, 1.0)
    standard_s, path_s = job[:, col.STANDARD_S], np.maximum(job[:, col.DURATION_S], 1.0)
    # What may be lost until one of the steps on the longest path must go on demand: spot is allowed as long
    # as a step could be done again after it.
    launch_s = np.where(usd_s > 0, clusters[..., col.LAUNCH_S], 0.0).max(1, keepdims=True)
    spare_s = job[:, col.SLACK_S] - path_s - launch_s[:, 0] - REDO * standard_s
    due_s = spare_s * np.minimum(1.0, standard_s / path_s) ** parameters.share
    due_s = np.maximum(due_s, parameters.least * (launch_s[:, 0] + standard_s))
    dearer = clusters[..., col.ON_DEMAND_USD_HOUR].max(1) / HOUR_S * standard_s - unit
    price_usd = parameters.time_price * np.maximum(dearer, 0.1 * unit)

    def time_usd(until_s: Floats) -> Floats:
        used = np.clip((until_s - standard_s[:, None]) / due_s[:, None], 0.0, MOST_USED)
        return np.asarray(price_usd[:, None] * used**2, np.float64)

    lasts_s = np.maximum(60.0, np.maximum(clusters[..., col.MEAN_UP_S], clusters[..., col.SPELL_S]))
    risk = np.where(clusters[..., col.IS_SPOT] > 0, -np.expm1(-end_s / lasts_s), 0.0)
    again = 0.5 * usd_s * end_s + time_usd(2 * end_s) - time_usd(end_s)
    loss = pair[..., col.EGRESS_USD] + risk * again
    cost = usd_s * end_s + loss + time_usd(end_s)
    # Waiting: for an instance that runs something, or for a spot offer to come back.
    busy = may & (clusters[..., col.USED] > 0)
    ratio = np.maximum(clusters[..., col.UP_RATIO], 1e-3)
    away_s = np.where(
        clusters[..., col.AVAILABLE] > 0, np.inf, clusters[..., col.MEAN_UP_S] * (1 - ratio) / ratio
    )
    round_s = np.maximum(job[:, col.ROUND_S], job[:, col.ROUND_LEFT_S] + standard_s)[:, None]
    later_s = np.where(busy, round_s, away_s + end_s)
    redo_s = np.where(clusters[..., col.IS_SPOT] > 0, launch_s + REDO * standard_s[:, None], 0.0)
    later_s = np.where(may & (later_s + redo_s <= job[:, [col.SLACK_S]]), later_s, np.inf)
    runs_s = np.where(busy, work_s + pair[..., col.TRANSFER_S], end_s)
    reachable = np.isfinite(later_s)
    then = np.where(reachable, usd_s * runs_s + loss + time_usd(np.where(reachable, later_s, 0.0)), NEVER_USD)
    best = then.argmin(1)
    rows = np.arange(len(best))
    none, wait_end_s = then[rows, best], np.where(reachable, later_s, end_s)[rows, best]
    keep_usd, launch_usd = idle_usd(shown)
    cost = np.where(idle[:, None], keep_usd, cost)
    none = np.where(idle, launch_usd, none)
    unit = np.where(idle, np.maximum(launch_usd, 1e-6), unit)
    return Choices(
        shown,
        np.concatenate([cost, none[:, None]], 1),
        unit,
        np.concatenate([end_s, wait_end_s[:, None]], 1),
        due_s,
        risk,
    )


class CheapestPlace(WorkflowRule):
    """Takes the place with the least price of launch, files and run, the sooner of equals; never waits."""

    name = "cheapest_place"

    def ranking(self, shown: Seen) -> Floats:
        """USD; "none" only where nothing else is valid."""
        usd = shown.pair[..., col.COST_USD] + 1e-9 * shown.pair[..., col.FINISH_S]
        return np.concatenate([usd, np.full((len(usd), 1), 1e11)], 1)


# HEFT (Topcuoglu, Hariri and Wu 2002) carried out step by step: on demand, and on spot.
#
# Steps are decided in order of upward rank, and each goes where it ends first, as published. A step is
# placed only once it is ready, given the current state, so interrupted and late steps are replanned.

_NOT_WANTED = 1e12
_WAIT = 1e11


class _EarliestFinish(WorkflowRule):
    """Earliest finish among the wanted places, then the cheapest; other places only if it must."""

    def ranking(self, shown: Seen) -> Floats:
        """Expected seconds until the step ends; with "none" behind all wanted places."""
        end_s = shown.pair[..., col.FINISH_S] + 1e-3 * shown.pair[..., col.COST_USD]
        end_s = end_s + np.where(self.wanted(shown), 0.0, _NOT_WANTED)
        return np.concatenate([end_s, np.full((len(end_s), 1), _WAIT)], 1)

    @abstractmethod
    def wanted(self, shown: Seen) -> Bools:
        """(n, C) places that it uses."""


class HeftOnDemand(_EarliestFinish):
    """On owned clusters and on-demand instances only."""

    name = "heft_on_demand"

    def wanted(self, shown: Seen) -> Bools:
        """Places that the provider cannot interrupt."""
        return np.asarray(shown.clusters[..., col.IS_SPOT] == 0)


class HeftSpot(_EarliestFinish):
    """On owned clusters and spot; on demand once there is no more time for spot."""

    name = "heft_spot"

    def wanted(self, shown: Seen) -> Bools:
        """Spot and owned clusters."""
        spot, owned = shown.clusters[..., col.IS_SPOT] > 0, shown.clusters[..., col.PROVIDER] == 0
        return np.asarray(spot | owned)


class WorkflowCost(WorkflowRule):
    """Takes the choice with the lowest expected cost (see `agents.workflows.online`)."""

    name = "workflow_cost"

    def __init__(self, parameters: WorkflowParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else WorkflowParameters()

    def ranking(self, shown: Seen) -> Floats:
        """Expected USD."""
        return weigh(shown, self.parameters).cost


# What `mtdqn` sees of each answer about a step of a workflow.


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
