"""Typed settings of a run: agent and trainer (the worlds' settings live beside the worlds)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from agents.factory import EVOLVED
from envs.simulation.world import WorldError
from envs.variety import Variety
from training.adapters.settings import ComparatorSettings, LibraryKind

AgentKind = Literal["rl_lsfc", "rl_fc", "spotweave", "scorer", "round_scorer"] | LibraryKind
Learning = Literal["monte_carlo", "counterfactual", "evolution"]


@dataclass
class AgentSettings:
    """What learns.

    Attributes:
        name: shown in tables and written into checkpoints.
        kind: the network: "rl_lsfc" and "rl_fc" of Liu 2022, "spotweave", the pairwise network, or
            "scorer", the small compiled one for clusters that queue, or "round_scorer", the small one for
            federated tasks.
        learning: "monte_carlo" regresses what each decision of an episode turned out to be worth,
            "counterfactual" tries the choices of a decision in copies of the world, "evolution"
            (scorer, round_scorer) tries variants of the weights on whole episodes.
        features: "table_5_1" (the state of chapter 5), "table_4_1" (of chapter 4; rl_fc) or "all" (every
            column); for rl_lsfc and rl_fc.
        weights: scalarisation weights of the value components; empty: the world's defaults.
        scales: magnitudes by which targets are divided; empty: the world's defaults.
        lstm_size: hidden units of the LSTM (rl_lsfc).
        shared_size: width of the shared layer (rl_lsfc: N_fc1 = 800).
        head_size: width of each head (rl_lsfc: N_fc2 = 200).
        hidden_sizes: the two hidden layers of rl_fc (2000 and 500 in chapter 4).
        appraiser: rule whose expected cost of each choice is an input of the network (spotweave): "none",
            "expected_cost", "tuned", or "auto", which takes what suits the environment.
        shortlist: with an appraiser, choose among its so many cheapest clusters only; 0: all.
        margin: with an appraiser, another choice than its cheapest must be better by this much (objective).
        relative: whether corrections of the appraiser's costs are in proportion to what a job costs
            (appraiser "expected_cost").
        embedding_size: width of cluster and job encodings (spotweave).
        pair_size: width of the pair layers (spotweave, scorer).
        rounds: whether the network sees the columns of federated tasks (spotweave); a world that has such
            tasks turns it on.
        comparator: settings of the agents that libraries train.
    """

    name: str = "rl_lsfc"
    kind: AgentKind = "rl_lsfc"
    learning: Learning = "monte_carlo"
    features: Literal["table_5_1", "table_4_1", "all"] = "table_5_1"
    weights: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    lstm_size: int = 64
    shared_size: int = 800
    head_size: int = 200
    hidden_sizes: list[int] = field(default_factory=lambda: [2000, 500])
    appraiser: Literal["auto", "none", "expected_cost", "tuned"] = "auto"
    shortlist: int = 4
    margin: float = 0.0
    relative: bool = False
    embedding_size: int = 64
    pair_size: int = 128
    rounds: bool = False
    comparator: ComparatorSettings = field(default_factory=ComparatorSettings)


@dataclass
class ScheduleSettings:
    """From `start` to `end` over the first `share` of the episodes; "step" jumps there, "linear" glides."""

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


@dataclass
class CounterfactualSettings:
    """How counterfactual labels are made (agent.learning "counterfactual").

    Attributes:
        states_per_episode: decisions labelled in each behaviour episode.
        further_arrivals: a copy of the world sees this many more arrivals, then runs empty.
        copies: lanes of the world that holds the copies.
        threads: copies are played out by this many threads.
        candidates: at most this many choices are tried per labelled decision.
        self_play_share: from this share of the episodes on, copies follow the learned policy, not the guide.
    """

    states_per_episode: int = 24
    further_arrivals: int = 12
    copies: int = 512
    threads: int = 2
    candidates: int = 24
    self_play_share: float = 1.1


@dataclass
class EvolutionSettings:
    """How variants of the weights are tried (agent.learning "evolution"); `trainer.lanes` of them in a round.

    Attributes:
        sigma: size of the variations.
        unit: what differences of return are measured in: "rms", their root mean square, or "median", which
            suits episodes of very different size.
        penalties: by metric, what a unit of it takes off an episode's return, on top of the objective:
            shifts the balance between its parts. The checkpoint is chosen on validation in the same way.
        threads: the lanes are split among this many threads.
    """

    sigma: float = 0.1
    unit: Literal["rms", "median"] = "rms"
    threads: int = 2
    penalties: dict[str, float] = field(default_factory=dict)

    def penalty(self, metrics: Mapping[str, float]) -> float:
        """What the metrics of an episode (or their means) take off its return."""
        return sum(weight * metrics[name] for name, weight in self.penalties.items())


@dataclass
class TrainerSettings:
    """How it learns.

    Attributes:
        episodes: training episodes.
        lanes: episodes played at the same time; learning and checkpoints happen between such rounds.
        max_minutes: training stops at the first round after this; 0: no limit.
        gradient_steps: gradient steps per episode.
        batch_size: decisions per gradient step.
        replay_capacity: decisions kept.
        optimizer: "adam" or "sgd".
        loss: "mse" or "huber".
        target_clip: bound on scaled targets.
        learning_rate: schedule over the episodes.
        epsilon_1: chance to explore (Liu 2022, eq. 4.3).
        epsilon_2: share of exploration that is random; the rest follows the guide.
        guide: the rule that guides and that curves are compared with.
        validation_every: episodes between validations.
        validation_episodes: episodes of the validation suite.
        test_episodes: episodes of the test suite for the table at the end; 0: no table.
        save_every_minutes: minutes between checkpoints of the whole training state.
        counterfactual: settings of agent.learning "counterfactual".
        variety: which other markets than the configured one are trained on (agent.learning "counterfactual",
            env multicloud).
        evolution: settings of agent.learning "evolution"; of the others it uses episodes, lanes,
            learning_rate and those of validation, test and saving.
    """

    episodes: int = 500
    lanes: int = 20
    max_minutes: float = 0.0
    gradient_steps: int = 4
    batch_size: int = 512
    replay_capacity: int = 50_000
    optimizer: Literal["adam", "sgd"] = "adam"
    loss: Literal["mse", "huber"] = "mse"
    target_clip: float = 5.0
    learning_rate: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(5e-4, 5e-5))
    epsilon_1: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(0.8, 0.0, 0.5))
    epsilon_2: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(0.5, 0.5))
    guide: str = "maf"
    validation_every: int = 100
    validation_episodes: int = 10
    test_episodes: int = 50
    save_every_minutes: float = 2.0
    counterfactual: CounterfactualSettings = field(default_factory=CounterfactualSettings)
    variety: Variety = field(default_factory=Variety)
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)


@dataclass
class RunSettings:
    """What belongs to a run as a whole.

    Attributes:
        seed: root of all random streams.
        device: where networks compute.
        out: run directory; None: runs/ENV/AGENT-seedN-TIME.
        resume: a run directory to go on with.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    out: str | None = None
    resume: str | None = None


def check_agent(agent: AgentSettings) -> None:
    """Refuse settings that no network can be made of, in one line.

    Raises:
        WorldError: naming the setting, its value and what is expected.
    """
    for name in ("lstm_size", "shared_size", "head_size", "embedding_size", "pair_size"):
        if getattr(agent, name) < 1:
            raise WorldError(f"agent.{name} is {getattr(agent, name)}: expected at least 1")
    if (agent.kind in EVOLVED) != (agent.learning == "evolution"):
        raise WorldError(
            f"agent.kind={agent.kind} does not go with agent.learning={agent.learning}: the kinds "
            f"{' and '.join(sorted(EVOLVED))} learn by evolution, and no other kind does"
        )
    if agent.kind in EVOLVED and (agent.weights or agent.scales):
        raise WorldError(
            f"agent.weights and agent.scales do not go with agent.kind={agent.kind}, which learns the "
            "objective itself: leave them out"
        )
    if len(agent.hidden_sizes) != 2 or min(agent.hidden_sizes) < 1:
        raise WorldError(f"agent.hidden_sizes is {agent.hidden_sizes}: expected two sizes of at least 1")
    if not all(math.isfinite(weight) for weight in agent.weights):
        raise WorldError(f"agent.weights is {agent.weights}: expected finite numbers")
    if not all(0.0 < scale < math.inf for scale in agent.scales):
        raise WorldError(f"agent.scales is {agent.scales}: expected positive numbers")


def check_trainer(trainer: TrainerSettings) -> None:
    """Refuse settings that cannot train, in one line.

    Raises:
        WorldError: naming the setting, its value and what is expected.
    """
    positive = (
        "episodes",
        "lanes",
        "gradient_steps",
        "batch_size",
        "replay_capacity",
        "validation_every",
        "validation_episodes",
    )
    for name in positive:
        if getattr(trainer, name) < 1:
            raise WorldError(f"trainer.{name} is {getattr(trainer, name)}: expected at least 1")
    if trainer.replay_capacity < trainer.batch_size:
        raise WorldError(
            f"trainer.replay_capacity ({trainer.replay_capacity}) is smaller than "
            f"trainer.batch_size ({trainer.batch_size}): raise the one or lower the other"
        )
    if trainer.test_episodes < 0 or trainer.test_episodes == 1:
        raise WorldError(
            f"trainer.test_episodes is {trainer.test_episodes}: expected at least 2, or 0 for no table"
        )
    rates = trainer.learning_rate
    if not (0 < rates.start < math.inf and 0 <= rates.end < math.inf):
        raise WorldError(f"trainer.learning_rate must be positive, got {rates.start} to {rates.end}")
    if not trainer.target_clip > 0:
        raise WorldError(f"trainer.target_clip is {trainer.target_clip}: expected a positive number")
    for name in ("epsilon_1", "epsilon_2"):
        schedule: ScheduleSettings = getattr(trainer, name)
        if not (0 <= schedule.start <= 1 and 0 <= schedule.end <= 1):
            raise WorldError(f"trainer.{name} must stay within 0..1, got {schedule.start} to {schedule.end}")
    if not 0.0 < trainer.evolution.sigma < math.inf:
        raise WorldError(f"trainer.evolution.sigma is {trainer.evolution.sigma}: expected a positive number")
    if trainer.evolution.threads < 1:
        raise WorldError(f"trainer.evolution.threads is {trainer.evolution.threads}: expected at least 1")
    trainer.variety.validate()
    _check_counterfactual(trainer.counterfactual)


def _check_counterfactual(settings: CounterfactualSettings) -> None:
    for name, least in (("states_per_episode", 1), ("further_arrivals", 0), ("candidates", 2)):
        if getattr(settings, name) < least:
            raise WorldError(
                f"trainer.counterfactual.{name} is {getattr(settings, name)}: expected at least {least}"
            )
    if settings.copies < settings.candidates:
        raise WorldError(
            f"trainer.counterfactual.copies is {settings.copies}: expected at least as many as candidates "
            f"({settings.candidates}), one for each choice that is tried"
        )
