"""The trained agents of an experiment: where they are, and with which weights they are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Discriminator, Field, Tag

from agents.policy import Policy
from agents.stored import CheckpointError, load_policy_state, policy_file
from envs.simulation.world import WorldSpec
from training.checkpoint import load_policy
from training.config import UsageError
from training.releases import file_hash

Patterns = str | list[str]


class NotTrainedError(UsageError):
    """An agent of which there are no runs."""


@dataclass
class WeightedRuns:
    """Trained agents under other scalarisation weights than they were trained with.

    Attributes:
        runs: their directories, released names, or patterns.
        weights: one per value component.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    runs: Patterns
    weights: Annotated[list[float], Field(min_length=1)]


def _form(value: object) -> str:
    """Which of the forms a configuration chose, so that a mistake is told of that one only."""
    if isinstance(value, str):
        return "name"
    return "names" if isinstance(value, list) else "weighted"


AgentSource = Annotated[
    Annotated[str, Tag("name")]
    | Annotated[list[str], Tag("names")]
    | Annotated[WeightedRuns, Tag("weighted")],
    Discriminator(_form),
]
"""A run's directory, a released name or a pattern over seeds; several; or {runs: ..., weights: [...]}."""


@dataclass(frozen=True)
class Trained:
    """One trained policy.

    Attributes:
        path: its policy.pt.
        weights: (K,) scalarisation weights; None: those it was trained with.
    """

    path: Path
    weights: tuple[float, ...] | None = None

    @property
    def identity(self) -> str:
        """What a played episode depends on."""
        name = f"checkpoint {file_hash(self.path)}"
        return name if self.weights is None else f"{name} weights {list(self.weights)}"

    def load(self, spec: WorldSpec, device: str) -> Policy:
        """The policy, ready for a world. Raises CheckpointError, ValueError (weights that do not fit)."""
        return load_policy(self.path, spec, self.weights, device)

    def facts(self) -> dict[str, object]:
        """What identifies it, and how it did on validation (under the weights of its training)."""
        training = load_policy_state(self.path)["training"]
        # What is published shall name no private folder: a released policy is found by its whole path.
        here = Path.cwd()
        facts = {
            "path": str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path),
            "sha256": file_hash(self.path),
            "seed": training["seed"],
            "episodes": training["episodes"],
            "validation": training["validation"],
        }
        return facts if self.weights is None else {**facts, "weights": list(self.weights)}


def find_trained(name: str, source: str | list[str] | WeightedRuns, trainings: str) -> list[Trained]:
    """Every trained policy of an agent, seeds in order.

    Args:
        name: of the agent, for messages.
        source: where it is.
        trainings: the command that trains it, for messages.

    Raises:
        NotTrainedError: if nothing matches.
        UsageError: if a run that matches is not finished.
    """
    if isinstance(source, WeightedRuns):
        weights = tuple(source.weights)
        return [Trained(path, weights) for path in find_policies(name, source.runs, trainings)]
    return [Trained(path) for path in find_policies(name, source, trainings)]


def find_policies(name: str, patterns: Patterns, trainings: str) -> list[Path]:
    """The policy files behind an agent's patterns, seeds in order.

    Raises:
        NotTrainedError: if nothing matches.
        UsageError: if a run that matches is not finished.
    """
    files: list[Path] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if not any(letter in pattern for letter in "*?["):
            try:
                files.append(policy_file(pattern))
            except CheckpointError as error:
                raise NotTrainedError(f"agent {name}: {error}. Train it: {trainings}") from error
            continue
        runs = sorted(
            Path().glob(pattern) if not pattern.startswith("/") else _absolute(pattern), key=_natural
        )
        if not runs:
            raise NotTrainedError(
                f"agent {name} is not trained: nothing matches {pattern}. Train it: {trainings}"
            )
        for run in runs:
            if not (run / "done.json").is_file():
                raise UsageError(f"agent {name}: {run} is not trained to its end. Go on with: {trainings}")
            files.append(run / "policy.pt")
    return files


def _absolute(pattern: str) -> list[Path]:
    return list(Path("/").glob(pattern.lstrip("/")))


def _natural(path: Path) -> tuple[int, str]:
    """seed2 comes before seed10."""
    return len(path.name), path.name
