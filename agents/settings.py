"""The settings of each kind of agent: `agent.KEY=VALUE` on the command line, and part of every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

Size = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Guide = Literal["tuned", "committed", "expected_cost", "bag_cost", "workflow_cost", "round_cost"]
Features = Literal["table_5_1", "table_4_1", "all"]


@dataclass
class AgentSettings:
    """What all agents have."""

    name: str = ""  # shown in tables and written into checkpoints
    kind: str = ""  # the agent, as `agent=` names it


@dataclass
class ValueSettings(AgentSettings):
    """Agents whose network predicts the value components of every choice."""

    # scalarisation weights of the value components; empty: the world's defaults
    weights: list[Finite] = field(default_factory=list)
    # magnitudes by which targets are divided; empty: the world's defaults
    scales: list[Positive] = field(default_factory=list)


@dataclass
class RLLSFCSettings(ValueSettings):
    """RL-LSFC (Liu 2022, chapter 5)."""

    features: Features = "table_5_1"  # "table_5_1" (the state of chapter 5) or "all" (every column)
    lstm_size: Size = 64  # hidden units of the LSTM
    shared_size: Size = 800  # width of the shared layer (N_fc1)
    head_size: Size = 200  # width of each head (N_fc2)


@dataclass
class RLFCSettings(ValueSettings):
    """RL-FC (Liu 2022, chapter 4)."""

    features: Features = "table_5_1"  # as for RL-LSFC, or "table_4_1" (the state of chapter 4)
    # the two hidden layers
    hidden_sizes: Annotated[list[Size], Field(min_length=2, max_length=2)] = field(
        default_factory=lambda: [2000, 500]
    )


@dataclass
class MTDQNSettings(AgentSettings):
    """The agent `mtdqn`."""

    # of own misses, the mutual value, delay, and in markets money and owned hours; empty: as the world's
    # objective charges them (owned hours: as the world weighs them)
    weights: list[Finite] = field(default_factory=list)
    # the rule that guides exploration, whose order of jobs is followed and which says what is known without
    # waiting: `tuned` for jobs on clusters, `committed` where the world shows the forecast of chapter 4,
    # `expected_cost` in markets, `bag_cost`, `workflow_cost` and `round_cost` for bags, workflows and rounds
    guide: Guide = "tuned"
    # units of the LSTM over the occupation of each choice's place; 0: none, as in bags, workflows and rounds
    lstm_size: Annotated[int, Field(ge=0)] = 8
    # units of both hidden layers of the own heads; 0: none, as there
    own_size: Annotated[int, Field(ge=0)] = 64
    networks: Size = 1  # sets of own heads, learned side by side; the mean of their values counts
    mutual_size: Annotated[int, Field(ge=0)] = 32  # units of both hidden layers of the mutual head; 0: none
    # in markets, another choice than the guide's must be better by this share of what the decision is about
    # (up to eight times that where few offers can be rented). Chosen on validation episodes
    margin: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0


@dataclass
class SpotSettings(AgentSettings):
    """The agent `spot_values`, which learns from as many recorded stretches as `trainer.episodes` says."""

    hazard_buckets: Size = 8  # buckets of the chance that the zone chosen loses its spot
    return_buckets: Size = 8  # buckets of the chance that any zone gets some
    quality_buckets: Size = 6  # buckets of the share of the coming hours in which any zone has spot
    crowd: Size = 3  # the largest number of zones with spot that is told apart
    risk: Positive = 5.0  # cost of an interruption in ticks on demand, where zones are compared


@dataclass
class LibrarySettings(AgentSettings):
    """Agents that libraries train; the trainer's settings give the rest."""

    jobs: Size = 4  # jobs of the window that the agent sees and may decide, the first by arrival
    # units of each hidden layer (ReLU); not of `decima`
    hidden_sizes: Annotated[list[Size], Field(min_length=1)] = field(default_factory=lambda: [256, 256])
    discount: Annotated[float, Field(ge=0.0, le=1.0)] = 0.99  # gamma per decision
    environments: Size = 1  # copies of the world stepped in turn (PPO of SB3)
    rollout: Size = 512  # decisions per copy between updates (PPO), or per call of the library (DQN)
    epochs: Size = 4  # passes over a rollout (PPO)
    # weight of the entropy of the policy in the loss (PPO)
    entropy: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    embedding_size: Size = 32  # units of the embeddings (decima)
    train_every: Size = 8  # decisions between gradient steps (DQN)
    target_every: Size = 2000  # decisions between copies into the target network (DQN)
    learning_starts: Annotated[int, Field(ge=0)] = 1000  # decisions before the first gradient step (DQN)
