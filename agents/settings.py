"""The settings of each kind of agent: `agent.KEY=VALUE` on the command line, and part of every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

Size = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Features = Literal["table_5_1", "table_4_1", "all"]


@dataclass
class AgentSettings:
    """What all agents have.

    Attributes:
        name: shown in tables and written into checkpoints.
        kind: the agent, as `agent=` names it.
    """

    name: str = ""
    kind: str = ""


@dataclass
class ValueSettings(AgentSettings):
    """Agents whose network predicts the value components of every choice.

    Attributes:
        learning: "monte_carlo" regresses what each decision of an episode turned out to be worth,
            "counterfactual" tries the choices of a decision in copies of the world.
        weights: scalarisation weights of the value components; empty: the world's defaults.
        scales: magnitudes by which targets are divided; empty: the world's defaults.
    """

    learning: Literal["monte_carlo", "counterfactual"] = "monte_carlo"
    weights: list[Finite] = field(default_factory=list)
    scales: list[Positive] = field(default_factory=list)


@dataclass
class RLLSFCSettings(ValueSettings):
    """RL-LSFC (Liu 2022, chapter 5).

    Attributes:
        features: "table_5_1" (the state of chapter 5) or "all" (every column).
        lstm_size: hidden units of the LSTM.
        shared_size: width of the shared layer (N_fc1).
        head_size: width of each head (N_fc2).
    """

    features: Features = "table_5_1"
    lstm_size: Size = 64
    shared_size: Size = 800
    head_size: Size = 200


@dataclass
class RLFCSettings(ValueSettings):
    """RL-FC (Liu 2022, chapter 4).

    Attributes:
        features: as for RL-LSFC, or "table_4_1" (the state of chapter 4).
        hidden_sizes: the two hidden layers.
    """

    features: Features = "table_5_1"
    hidden_sizes: Annotated[list[Size], Field(min_length=2, max_length=2)] = field(
        default_factory=lambda: [2000, 500]
    )


@dataclass
class PairwiseSettings(ValueSettings):
    """The pairwise network.

    Attributes:
        learning: as in `ValueSettings`.
        appraiser: rule whose expected cost of each choice is an input of the network: "none",
            "expected_cost", "tuned", or "auto", which takes what suits the environment.
        shortlist: with an appraiser, choose only among this many of its cheapest clusters; 0: all.
        margin: with an appraiser, another choice than its cheapest must be better by this much (objective).
            Both are chosen on validation episodes: more, or less certain, choices are won by estimates that
            are too high.
        relative: whether corrections of the appraiser's costs are in proportion to what a job costs
            (appraiser "expected_cost").
        embedding_size: width of cluster and job encodings.
        pair_size: width of the pair layers.
        rounds: whether the network sees the columns of federated tasks; a world that has such tasks turns
            it on.
    """

    learning: Literal["monte_carlo", "counterfactual"] = "counterfactual"
    appraiser: Literal["auto", "none", "expected_cost", "tuned"] = "auto"
    shortlist: Annotated[int, Field(ge=0)] = 4
    margin: Finite = 3.0
    relative: bool = True
    embedding_size: Size = 64
    pair_size: Size = 128
    rounds: bool = False


@dataclass
class ScorerSettings(AgentSettings):
    """Agents that learn the objective itself, by an evolution strategy on whole episodes.

    Attributes:
        hidden_size: hidden units.
    """

    hidden_size: Size = 24


@dataclass
class LibrarySettings(AgentSettings):
    """Agents that libraries train; the trainer's settings give the rest.

    Attributes:
        jobs: jobs of the window that the agent sees and may decide, the first by arrival.
        hidden_sizes: units of each hidden layer (ReLU).
        discount: gamma per decision.
        environments: copies of the world stepped in turn (maskable_ppo).
        rollout: decisions per copy between updates (maskable_ppo), or per call of the library (DQN).
        epochs: passes over a rollout (maskable_ppo).
        train_every: decisions between gradient steps (DQN).
        target_every: decisions between copies into the target network (DQN).
        learning_starts: decisions before the first gradient step (DQN).
    """

    jobs: Size = 4
    hidden_sizes: Annotated[list[Size], Field(min_length=1)] = field(default_factory=lambda: [256, 256])
    discount: Annotated[float, Field(ge=0.0, le=1.0)] = 0.99
    environments: Size = 1
    rollout: Size = 512
    epochs: Size = 4
    train_every: Size = 8
    target_every: Size = 2000
    learning_starts: Annotated[int, Field(ge=0)] = 1000
