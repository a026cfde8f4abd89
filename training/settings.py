"""Typed settings of a run and its trainer (those of worlds and agents are with the worlds and agents)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from spotweave.envs.variety import Variety

Count = Annotated[int, Field(ge=1)]
Tracking = Literal["mlflow", "wandb"]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


@dataclass
class ScheduleSettings:
    """Schedule from `start` to `end` over the first `share` of episodes; "step" jumps, "linear" glides."""

    start: float = 0.0
    end: float = 0.0
    share: float = 1.0
    shape: Literal["linear", "step"] = "linear"

    def at(self, progress: float) -> float:
        """The value at `progress` in 0..1 of the episodes."""
        if self.shape == "step":
            return self.start if progress < self.share else self.end
        if self.share <= 0.0:
            return self.end
        return self.start + (self.end - self.start) * min(1.0, max(0.0, progress / self.share))


def _rate(schedule: ScheduleSettings) -> ScheduleSettings:
    if not (0 < schedule.start < math.inf and 0 <= schedule.end < math.inf):
        raise ValueError(f"expected positive numbers, got {schedule.start} to {schedule.end}")
    return schedule


def _chance(schedule: ScheduleSettings) -> ScheduleSettings:
    if not (0 <= schedule.start <= 1 and 0 <= schedule.end <= 1):
        raise ValueError(f"expected numbers in 0..1, got {schedule.start} to {schedule.end}")
    return schedule


Rate = Annotated[ScheduleSettings, AfterValidator(_rate)]
Chance = Annotated[ScheduleSettings, AfterValidator(_chance)]


@dataclass
class MultiTargetSettings:
    """How the agent `mtdqn` learns.

    Of the other settings it uses episodes, lanes, gradient_steps (per workload), batch_size, replay_capacity,
    learning_rate, epsilon_1, epsilon_2, variety and those of validation, test and saving.
    """

    # lanes that play the same workload; 0: all of them. `trainer.lanes` is a multiple
    copies: Annotated[int, Field(ge=0)] = 0
    # before this share of the episodes the guide counts as the greedy policy
    follow_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    # decisions of an episode whose own outcome is learned from, explored ones first; 0: all of them
    kept_per_episode: Annotated[int, Field(ge=0)] = 0
    workloads: Count = 32  # kept to compare lanes
    workloads_per_step: Count = 2  # compared in a gradient step of the mutual value
    mutual_steps: Count = 4  # such steps per workload
    # size of a lane's taste in bags, workflows and rounds (see `training.trainers.multi_target`)
    taste: Positive = 0.1
    # share of the acting network that stays as it was when it follows the learning one
    average: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.97


@dataclass
class TrainerSettings:
    """How an agent learns: episodes, gradient steps, exploration, validation."""

    episodes: Count = 500  # training episodes
    lanes: Count = 20  # episodes played at the same time; learning and checkpoints happen between such rounds
    # training stops at the first round after this, compilation not counted; 0: no limit
    max_minutes: float = 0.0
    # training stops at the first round after this; 0: no limit. The schedules of agents that libraries train
    # then go by decisions, so that each of them gets the same experience
    max_decisions: Annotated[int, Field(ge=0)] = 0
    gradient_steps: Count = 4  # gradient steps per episode
    batch_size: Count = 512  # decisions per gradient step
    replay_capacity: Count = 50_000  # decisions kept
    optimizer: Literal["adam", "sgd"] = "adam"  # "adam" or "sgd"
    loss: Literal["mse", "huber"] = "mse"  # "mse" or "huber"
    target_clip: Positive = 5.0  # bound on scaled targets
    # schedule over the episodes
    learning_rate: Rate = field(default_factory=lambda: ScheduleSettings(5e-4, 5e-5))
    # chance to explore (Liu 2022, eq. 4.3)
    epsilon_1: Chance = field(default_factory=lambda: ScheduleSettings(0.8, 0.0, 0.5))
    # share of exploration that is random; the rest follows the guide
    epsilon_2: Chance = field(default_factory=lambda: ScheduleSettings(0.5, 0.5))
    guide: str = "maf"  # the rule that guides and that curves are compared with
    validation_every: Count = 100  # episodes between validations
    validation_episodes: Count = 10  # episodes of the validation suite
    # from this share of the episodes on, the best validation so far is kept, before it the untrained policy;
    # the last one counts in any case. Of many noisy validations the best is lucky, and early ones are many
    choose_from: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    prefer_last: bool = False  # keep the last policy if it is better than the untrained one, not the best
    # episodes of the test suite for the table at the end; 0: no table
    test_episodes: Annotated[int, Field(ge=0)] = 50
    save_every_minutes: float = 2.0  # minutes between checkpoints of the whole training state
    # which other markets than the configured one are trained on (agent `mtdqn`)
    variety: Variety = field(default_factory=Variety)
    # settings of the agent `mtdqn`
    multi_target: MultiTargetSettings = field(default_factory=MultiTargetSettings)

    def __post_init__(self) -> None:
        if self.replay_capacity < self.batch_size:
            raise ValueError(
                f"replay_capacity ({self.replay_capacity}) is smaller than batch_size ({self.batch_size}): "
                "raise the one or lower the other"
            )
        if self.test_episodes == 1:
            raise ValueError("test_episodes is 1: expected at least 2, or 0 for no table")


@dataclass
class RunSettings:
    """What belongs to a run as a whole."""

    seed: Annotated[int, Field(ge=0)] = 0  # root of all random streams
    device: Literal["auto", "cpu", "cuda"] = "auto"  # where networks compute
    out: str | None = None  # run directory; None: runs/ENV/AGENT-seedN-TIME
    resume: str | None = None  # a run directory to go on with
    # a released policy, a run's directory or a policy.pt to start from; None: from scratch
    checkpoint: str | None = None
    tracking: Tracking | None = None  # what keeps the curves besides TensorBoard; None: nothing


_NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("sb3_dqn", "maskable_ppo", "decima"), ("sb3", ("stable_baselines3", "sb3_contrib"))),
    "rllib_dqn": ("rllib", ("ray", "ray.rllib")),
}


class MissingExtraError(ValueError):
    """An agent was asked for whose library is not installed."""


def require_library(kind: str) -> None:
    """Make sure that the library behind an agent can be imported; other agents need none.

    Raises:
        MissingExtraError: naming the command that installs it.
    """
    if kind not in _NEEDS:
        return
    extra, modules = _NEEDS[kind]
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(
                f"agent={kind} is trained by {module}, which is not installed: "
                f"pip install 'spotweave[{extra}]'"
            )
