"""The trained agents of an experiment: where they are, and with which weights they are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ConfigDict, Discriminator, Field, Tag
from yaml import YAMLError

from spotweave.agents.policy import Policy
from spotweave.agents.stored import CheckpointError, load_policy_state, policy_file
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.checkpoint import RunDirectory, load_policy
from spotweave.training.config import UsageError, agent_settings, compose_values, plain, typed, world_config
from spotweave.training.engine import RaySettings
from spotweave.training.files import file_hash
from spotweave.training.settings import TrainerSettings

Patterns = str | list[str]


class NotTrainedError(UsageError):
    """An agent of which there are no runs."""


@dataclass
class WeightedRuns:
    """Trained agents under other scalarisation weights than they were trained with."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    runs: Patterns  # their directories, released names, or patterns
    weights: Annotated[list[float], Field(min_length=1)]  # one per value component


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
    """One trained policy; `weights` None are those that it was trained with."""

    path: Path
    weights: tuple[float, ...] | None = None

    @property
    def identity(self) -> str:
        """Identity of the policy in the key of a played episode."""
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
    """Every trained policy of an agent, seeds in order. Raises as `find_policies`."""
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
        root = Path("/" if pattern.startswith("/") else "")
        # seed2 comes before seed10
        runs = sorted(root.glob(pattern.lstrip("/")), key=lambda run: (len(run.name), run.name))
        if not runs:
            raise NotTrainedError(
                f"agent {name} is not trained: nothing matches {pattern}. Train it: {trainings}"
            )
        for run in runs:
            if not (run / "done.json").is_file():
                raise UsageError(f"agent {name}: {run} is not trained to its end. Go on with: {trainings}")
            files.append(run / "policy.pt")
    return files


# What a study trains: named settings of training/train.py, each with several seeds.

OWN_WORDS = ("seed=", "out=", "resume=", "trainer.test_episodes=", "engine=", "workers=", "ray.")


@dataclass
class Training:
    """One training of a study."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    # words for training/train.py, e.g. [+env=multicluster, agent=rl_lsfc, trainer=paper]
    overrides: list[str]
    seeds: list[Annotated[int, Field(ge=0)]] = field(default_factory=lambda: [0, 1, 2, 3, 4])  # one run each


@dataclass(kw_only=True)
class StudySettings:
    """Where the runs of a study are, how many at a time, and what trains them."""

    out: str  # directory of all runs
    only: list[str] | None = None  # names of what is trained; None: all
    workers: Annotated[int, Field(ge=1)] = 2  # runs at the same time
    threads: Annotated[int, Field(ge=1)] = 1  # OMP_NUM_THREADS of each
    # where they are trained: in processes of this machine, or on a Ray cluster that all of them share. There,
    # those whose episodes are tasks have them played, and the others are trained whole
    engine: Literal["local", "ray"] = "local"
    ray: RaySettings = field(default_factory=RaySettings)  # where that is

    def chosen(self, names: Iterable[str], what: str) -> list[str]:
        """Those of the names that `only` asks for. Raises UsageError for another one."""
        known = list(names)
        for name in self.only or []:
            if name not in known:
                raise UsageError(f"only names {name!r}: the {what} are {', '.join(known)}")
        return known if self.only is None else [name for name in known if name in self.only]


@dataclass
class RepeatSettings(StudySettings):
    """What `training/repeat.py` does; a run is OUT/NAME/seedN."""

    trainings: dict[str, Training]  # by name
    seeds: list[Annotated[int, Field(ge=0)]] | None = None  # other seeds for every training; None: its own


@dataclass(frozen=True)
class Run:
    """One run that shall exist."""

    training: str
    seed: int
    directory: RunDirectory
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name in progress and messages."""
        return f"{self.training} seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return self.directory.done.is_file()

    @property
    def begun(self) -> bool:
        """Whether the run can be resumed, or lost."""
        trained = self.directory.state.is_file() or self.directory.policy.is_file()
        return trained and self.directory.config.is_file()

    def refuse_other_settings(self) -> None:
        """Refuse a directory whose run has other settings than are asked for now; nothing is changed there.

        Settings are compared with the defaults filled in, so a setting that did not exist when a run was made
        counts as its default.

        Raises:
            UsageError: naming the first setting that differs, what cannot be read, or what is asked wrongly.
        """
        asked = _settings(compose_values("train", self.overrides))
        if not self.begun:
            return
        try:
            there = OmegaConf.to_container(OmegaConf.load(self.directory.config))
            saved = _settings(there)  # type: ignore[arg-type]
        except (YAMLError, OmegaConfBaseException, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self.directory.config} is not the configuration of a run of this version "
                f"({' '.join(str(error).split())}): move {self.directory.path} away or give another out="
            ) from error
        for key, value in asked.items():
            if saved.get(key) != value:
                raise UsageError(
                    f"{self.directory.path} holds a run of other settings ({key} is {saved.get(key)!r} "
                    f"there, {value!r} is asked for): move it away or give another out="
                )


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    """Everything that a run's result depends on, flat: key with dots to value."""
    tree = {
        "seed": values["seed"],
        "device": values["device"],
        "checkpoint": values["checkpoint"],
        "env": {"name": values["env"]["name"], **plain(world_config(values["env"]))},
        "agent": plain(agent_settings(values["agent"])),
        "trainer": plain(typed(TrainerSettings, values["trainer"], "trainer")),
    }
    return dict(_leaves(tree, ""))


def _leaves(value: Any, where: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{where}.{key}".lstrip("."))]
    return [(where, value)]


def planned_runs(settings: RepeatSettings) -> list[Run]:
    """Every run that is asked for, seed by seed, so that early results cover all trainings.

    Raises:
        UsageError: for an unknown training, one without seeds, or words that the study sets itself.
    """
    runs = []
    for name in settings.chosen(settings.trainings, "trainings"):
        training = settings.trainings[name]
        seeds = training.seeds if settings.seeds is None else settings.seeds
        if not seeds or len(set(seeds)) < len(seeds):
            raise UsageError(f"training {name} has seeds {seeds}: expected at least one, each once")
        for word in training.overrides:
            if word.startswith(OWN_WORDS):
                raise UsageError(
                    f"training {name} gives {word}: seeds, directories and engines come from the command"
                )
        for seed in seeds:
            directory = RunDirectory(Path(settings.out) / name / f"seed{seed}")
            # A study measures all its policies on the same suites afterwards.
            own = "trainer.test_episodes=0", f"seed={seed}", f"out={directory.path}"
            runs.append(Run(name, seed, directory, (*training.overrides, *own)))
    return sorted(runs, key=lambda run: run.seed)
