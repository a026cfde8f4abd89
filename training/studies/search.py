"""Settings of agents found by random search: tried once each, chosen on validation, then trained anew."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field

from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.streams import Streams
from spotweave.training.config import UsageError, compose_values, world_config
from spotweave.training.studies.trained import RepeatSettings, Run, StudySettings, Training, planned_runs

TRIED = "tried"


@dataclass
class Search:
    """An agent and the values that its settings may take."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    overrides: list[str]  # words for training/train.py, e.g. [agent=maskable_ppo]
    # by setting, e.g. "agent.discount", the values to choose from
    space: dict[str, Annotated[list[Any], Field(min_length=1)]]
    # more words for the runs of the search, after those of all agents
    try_overrides: list[str] = field(default_factory=list)


@dataclass
class TuneSettings(StudySettings):
    """What `training/tune.py` does.

    Runs are OUT/NAME/tried/K/seedN of the search, and OUT/NAME/seedN of the best settings.
    """

    searches: dict[str, Search]  # by the name of the agent
    overrides: list[str] = field(default_factory=list)  # words for every run
    # words for the runs of the search, e.g. a smaller budget
    try_overrides: list[str] = field(default_factory=list)
    # settings that are tried for each agent, its defaults among them
    candidates: Annotated[int, Field(ge=1)] = 8
    try_seed: Annotated[int, Field(ge=0)] = 100  # of the runs of the search, and of the draw of candidates
    # of the runs with the best settings; the search's own is none of them
    seeds: list[Annotated[int, Field(ge=0)]] = field(default_factory=lambda: [0, 1, 2])

    def __post_init__(self) -> None:
        if self.try_seed in self.seeds:
            raise ValueError(f"try_seed is {self.try_seed}: expected none of the seeds {self.seeds}")


def candidates(space: dict[str, list[Any]], count: int, seed: int) -> list[list[str]]:
    """Words for each candidate: none for the first, the defaults, then `count` - 1 different ones, drawn.

    Where the space has fewer, all of them.
    """
    sizes = [len(values) for values in space.values()]
    drawn = Streams(seed).generator("exploration").permutation(math.prod(sizes))[: count - 1]
    places = np.stack(np.unravel_index(drawn, sizes), axis=1)
    return [
        [],
        *(
            [f"{key}={values[place]}" for (key, values), place in zip(space.items(), row, strict=True)]
            for row in places
        ),
    ]


@dataclass(frozen=True)
class Candidate:
    """Settings of an agent that are tried."""

    words: list[str]  # what distinguishes them, for training/train.py; none for the defaults
    run: Run  # the run that tries them


def searched(settings: TuneSettings) -> dict[str, list[Candidate]]:
    """Every candidate, by the agent's name, in the order in which they were drawn.

    Raises:
        UsageError: for an agent without a search.
    """
    return {name: _candidates(settings, name) for name in settings.chosen(settings.searches, "searches")}


def _candidates(settings: TuneSettings, name: str) -> list[Candidate]:
    search = settings.searches[name]
    drawn = candidates(search.space, settings.candidates, settings.try_seed)
    common, cheaper = (
        [*settings.overrides, *search.overrides],
        [*settings.try_overrides, *search.try_overrides],
    )
    trainings = {
        f"{name}/{TRIED}/{k}": Training([*common, *words, *cheaper], [settings.try_seed])
        for k, words in enumerate(drawn)
    }
    runs = _planned(settings, trainings)
    return [Candidate(words, run) for words, run in zip(drawn, runs, strict=True)]


def runs_of_best(settings: TuneSettings, name: str, best: Candidate) -> list[Run]:
    """The runs that train an agent with its best settings."""
    words = [*settings.overrides, *settings.searches[name].overrides, *best.words]
    return _planned(settings, {name: Training(words, settings.seeds)})


def _planned(settings: TuneSettings, trainings: dict[str, Training]) -> list[Run]:
    return planned_runs(RepeatSettings(trainings, out=settings.out))


def validated(run: Run) -> float:
    """The best objective of a finished run on validation, turned so that more is better.

    Raises:
        UsageError: if its file of validations cannot be read.
    """
    env = compose_values("train", run.overrides)["env"]
    entry = ENVIRONMENTS[env["name"]]
    spec = entry.build(entry.members_of(world_config(env), "validation")[0], 1).spec
    try:
        with run.directory.validations.open(encoding="utf-8", newline="") as file:
            values = [float(row[spec.metrics[0]]) for row in csv.DictReader(file)]
        return max(values) if spec.higher_is_better[0] else -min(values)
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(
            f"{run.directory.validations} is not that of a finished training: move {run.directory.path} "
            "away and search again"
        ) from error
