"""Which library agents there are, what they need installed, and what can be set for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, get_args

from envs.simulation.world import WorldError

LibraryKind = Literal["sb3_dqn", "maskable_ppo", "rllib_dqn"]

LIBRARY_KINDS: frozenset[str] = frozenset(get_args(LibraryKind))
"""Agent kinds that a library trains."""

_NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sb3_dqn": ("sb3", ("stable_baselines3",)),
    "maskable_ppo": ("sb3", ("stable_baselines3", "sb3_contrib")),
    "rllib_dqn": ("rllib", ("ray", "ray.rllib")),
}


@dataclass
class ComparatorSettings:
    """What is particular to agents from libraries; the trainer's settings give the rest.

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

    jobs: int = 4
    hidden_sizes: list[int] = field(default_factory=lambda: [256, 256])
    discount: float = 0.99
    environments: int = 1
    rollout: int = 512
    epochs: int = 4
    train_every: int = 8
    target_every: int = 2000
    learning_starts: int = 1000


class MissingExtraError(WorldError):
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


def check_library(settings: ComparatorSettings) -> None:
    """Refuse settings that cannot train, in one line.

    Raises:
        WorldError: naming the setting, its value and what is expected.
    """
    positive = ("jobs", "environments", "rollout", "epochs", "train_every", "target_every")
    for name in positive:
        if getattr(settings, name) < 1:
            raise WorldError(f"agent.comparator.{name} is {getattr(settings, name)}: expected at least 1")
    if settings.learning_starts < 0:
        raise WorldError(
            f"agent.comparator.learning_starts is {settings.learning_starts}: expected at least 0"
        )
    if not 0.0 <= settings.discount <= 1.0:
        raise WorldError(f"agent.comparator.discount is {settings.discount}: expected a number in [0, 1]")
    if not settings.hidden_sizes or min(settings.hidden_sizes) < 1:
        raise WorldError(
            f"agent.comparator.hidden_sizes is {settings.hidden_sizes}: "
            "expected at least one size of at least 1"
        )
