"""Every agent that can be trained, by name: its settings, and how its policy is made from them.

A package adds its own by an entry point of the group `agents` (docs/extending.md). Networks are
imported when one is made: every command reads this table, most of them without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from spotweave.agents.settings import (
    AgentSettings,
    LibrarySettings,
    MTDQNSettings,
    RLFCSettings,
    RLLSFCSettings,
    SpotSettings,
)
from spotweave.plugins import plugins

if TYPE_CHECKING:
    from spotweave.agents.mtdqn.policy import MTDQNPolicy
    from spotweave.agents.mtdqn.view import View
    from spotweave.agents.networks.base import ValueNetwork
    from spotweave.agents.policy import Policy
    from spotweave.envs.simulation.world import WorldSpec

GROUP = "spotweave.agents"


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
    from spotweave.agents.networks.rl_lsfc import RLLSFC

    sizes = settings.lstm_size, settings.shared_size, settings.head_size
    return RLLSFC(shape.n_clusters, shape.scales, settings.features, *sizes)


def _rl_fc(settings: RLFCSettings, shape: Shape) -> ValueNetwork:
    from spotweave.agents.networks.rl_lsfc import RLFC

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
