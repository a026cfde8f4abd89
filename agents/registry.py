"""Every agent that can be trained, by name: its settings, and how its policy is made from them.

A package adds its own by an entry point of the group `agents` (docs/extending.md). Networks are
imported when one is made: every command reads this table, most of them without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from spotweave.plugins import plugins

if TYPE_CHECKING:
    from spotweave.agents.mtdqn.policy import MTDQNPolicy
    from spotweave.agents.mtdqn.view import View
    from spotweave.agents.networks import ValueNetwork
    from spotweave.agents.policy import Policy
    from spotweave.envs.simulation.world import WorldSpec


# The settings of each kind of agent: `agent.KEY=VALUE` on the command line, and part of every checkpoint.


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


GROUP = "spotweave.agents"


# The agents by name.


@dataclass(frozen=True)
class Shape:
    """What a network is made for."""

    n_clusters: int  # C
    scales: tuple[float, ...]  # (K,) magnitudes of the value components
    weights: tuple[float, ...]  # (K,) scalarisation weights; they set the scale of a network with one output


Load = Callable[["Mapping[str, Any]", "WorldSpec", "Sequence[float] | None", str], "Policy"]
"""Builds the policy from a checkpoint's state, the world, other weights and the device."""


@dataclass(frozen=True)
class Agent:
    """An agent: its settings, and what trains and loads it."""

    title: str  # what it is, in a line
    source: str  # where it is described
    # a dataclass derived from `AgentSettings`. Of `ValueSettings` and `MTDQNSettings` come the trainers that
    # belong to them
    settings: type[AgentSettings]
    # from the settings and the shape to what is trained: a fresh `ValueNetwork`, or the policy of `mtdqn`
    # without weights
    make: Callable[[Any, Shape], ValueNetwork | MTDQNPolicy] | None = None
    any_clusters: bool = False  # whether its checkpoints serve any number of clusters
    worlds: tuple[str, ...] | None = None  # the worlds whose tasks it knows; None: all
    # makes its trainer from a `training.trainers.trainer.Task`; None: that of its settings
    trainer: Callable[[Any], Any] | None = None
    load: Load | None = None  # reads its checkpoints; None: `make` and the weights

    def defaults(self, kind: str) -> AgentSettings:
        """Settings of the agent under the name that `agent=` gives it."""
        return self.settings(name=kind, kind=kind)


def _rl_lsfc(settings: RLLSFCSettings, shape: Shape) -> ValueNetwork:
    from spotweave.agents.networks import RLLSFC

    sizes = settings.lstm_size, settings.shared_size, settings.head_size
    return RLLSFC(shape.n_clusters, shape.scales, settings.features, *sizes)


def _rl_fc(settings: RLFCSettings, shape: Shape) -> ValueNetwork:
    from spotweave.agents.networks import RLFC

    combined = max(abs(w) * s for w, s in zip(shape.weights, shape.scales, strict=True))
    first, second = settings.hidden_sizes
    return RLFC(shape.n_clusters, (combined,), settings.features, (first, second))


def _mtdqn(settings: MTDQNSettings, shape: Shape) -> MTDQNPolicy:
    from spotweave.agents.mtdqn.markets import MarketView
    from spotweave.agents.mtdqn.policy import MTDQNPolicy
    from spotweave.agents.mtdqn.questions import KINDS, QuestionView
    from spotweave.agents.mtdqn.slices import SliceView

    own, networks = settings.own_size, settings.networks
    lstm, mutual = settings.lstm_size, settings.mutual_size
    if networks > 1 and not own:
        raise ValueError(f"agent.networks is {networks}: expected 1 where agent.own_size is 0")
    view: View
    if settings.guide in KINDS:
        view = QuestionView(settings.guide, lstm, own, mutual)
    elif settings.guide == "expected_cost":
        view = MarketView(lstm, own, networks, mutual)
    else:
        view = SliceView(settings.guide == "committed", lstm, own, networks, mutual)
    return MTDQNPolicy(view, shape.weights, settings.name, settings.margin)


def _load_spot(
    state: Mapping[str, Any], spec: WorldSpec, weights: Sequence[float] | None, device: str
) -> Policy:
    from spotweave.agents.spot.model import SpotModel
    from spotweave.agents.spot.policy import SpotPolicy

    return SpotPolicy(SpotModel.of_state(state["network"]), state["agent"]["name"])


def _load_library(
    state: Mapping[str, Any], spec: WorldSpec, weights: Sequence[float] | None, device: str
) -> Policy:
    from spotweave.agents.library_policy import load_library_policy

    return load_library_policy(state, spec, weights, device)


def _library(title: str, source: str) -> Agent:
    return Agent(title, source, LibrarySettings, load=_load_library)


OURS: Mapping[str, Agent] = {
    "rl_lsfc": Agent(
        "LSTM over occupations, shared layer, one head per value component",
        "Liu 2022, chapter 5",
        RLLSFCSettings,
        _rl_lsfc,
    ),
    "rl_fc": Agent(
        "two hidden layers over the flat state, one scalarised value",
        "Liu 2022, chapter 4",
        RLFCSettings,
        _rl_fc,
    ),
    "mtdqn": Agent(
        "LSTM multi-target DQN: values of the own job and of what a choice does to all others",
        "Spotweave, docs/training.md",
        MTDQNSettings,
        _mtdqn,
        any_clusters=True,
        worlds=("multicluster", "chapter4", "multicloud", "federated", "bags", "workflows"),
    ),
    "spot_values": Agent(
        "hazards of recorded zones and the value of slack that follows from them, under a safety net",
        "Spotweave, docs/training.md",
        SpotSettings,
        any_clusters=True,
        worlds=("spot",),
        load=_load_spot,
    ),
    "sb3_dqn": _library("DQN with action masks", "Stable-Baselines3 (extra sb3)"),
    "maskable_ppo": _library("PPO with action masks", "sb3-contrib (extra sb3)"),
    "decima": _library(
        "a network over the sets of jobs and clusters, by PPO with action masks",
        "after Mao et al. 2019; sb3-contrib (extra sb3)",
    ),
    "rllib_dqn": _library("double DQN with action masks", "RLlib (extra rllib)"),
}
"""The agents of this repository."""


@cache
def agents() -> Mapping[str, Agent]:
    """Every agent by name: ours, then those of installed packages.

    Raises:
        PluginError: for an entry point that cannot be loaded, is no `Agent`, or has a name that is taken.
    """
    return {**OURS, **plugins(GROUP, Agent, OURS)}


def agent_named(kind: str) -> Agent:
    """The agent that `agent=KIND` names.

    Raises:
        ValueError: if there is none; it lists those that there are.
    """
    if kind not in agents():
        raise ValueError(f"unknown agent {kind!r}: expected one of {', '.join(agents())}")
    return agents()[kind]
