"""What an experiment is: scenarios, policies, what is shown of them, and what was published."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from spotweave.agents.rules import RULES
from spotweave.training.config import UsageError, compose_values, plain, typed
from spotweave.training.studies.trained import (
    AgentSource,
    NotTrainedError,
    Trained,
    find_trained,
)

FigureKind = Literal[
    "sorted_episodes", "training_curves", "dominance", "job_scatter", "category_counts", "relative", "bars"
]
STRICT = ConfigDict(extra="forbid")
DRAW = "{draw}"


@dataclass
class ScenarioSettings:
    """One world that every policy is measured in."""

    __pydantic_config__ = STRICT

    title: str  # what tables call it
    env: list[str]  # words that configure the world, e.g. [+env=multicluster, env.workload.arrivals.b=36]
    # trained agents of this scenario only; see ExperimentSettings
    agents: dict[str, AgentSource] = field(default_factory=dict)
    # by policy, then metric (or "fsn", or "score_a" to "score_d"): the printed numbers
    published: dict[str, dict[str, float | list[float]]] = field(default_factory=dict)
    # many worlds as one scenario: `{draw}` in `env` and `agents` stands for each of these numbers
    draws: list[int] = field(default_factory=list)

    def drawn(self, draw: int) -> ScenarioSettings:
        """The scenario of one of its draws."""
        text = json.dumps({"env": self.env, "agents": plain(self.agents)}).replace(DRAW, str(draw))
        return typed(ScenarioSettings, {**plain(self), **json.loads(text), "draws": []}, "experiment")


@dataclass
class FigureSettings:
    """A picture of an experiment."""

    __pydantic_config__ = STRICT

    kind: FigureKind  # what is drawn
    caption: str  # what the page says below it
    scenarios: list[str] | None = None  # their ids; None: all
    policies: list[str] | None = None  # names; None: all
    metrics: list[str] = field(default_factory=list)  # a panel each
    sort_policy: str = ""  # sorted_episodes: episodes are sorted by this policy's value
    sort_metric: str = ""  # ... of this metric, from high to low


@dataclass
class ClairvoyantSettings:
    """Bounds of any policy: a plan made with knowledge of the future, and no waiting at all."""

    __pydantic_config__ = STRICT

    # the policy that the planner follows in its copies of the world: an agent (its best seed on validation)
    # or a rule of the experiment
    base: str
    # the planner plays this many of the suite, from its first (all of them if it has fewer)
    episodes: Annotated[int, Field(ge=2)] = 10
    further: Annotated[int, Field(ge=0)] = 300  # jobs that still arrive in a copy after a decision
    skipped: list[str] = field(default_factory=list)  # scenarios without bounds, where plans take too long


@dataclass
class ExperimentSettings:
    """One table or figure of a publication."""

    __pydantic_config__ = STRICT

    study: str  # the publication; results go to results/STUDY/NAME
    name: str  # e.g. "table_5_3"
    title: str  # what it is called there
    trainings: str  # the command that makes the trained agents, for a message
    scenarios: dict[str, ScenarioSettings]  # by id
    rules: list[str]  # names of rules
    reference: str  # the policy that the publication compares with
    metrics: Annotated[list[str], Field(min_length=1)]  # means that are shown
    # trained agents by name: a run's directory, a released name, or a pattern over seeds
    # ("runs/liu2022/rl_lsfc/seed*"); all that match are measured. With {runs: PATTERN, weights: [...]} they
    # are loaded under other scalarisation weights
    agents: dict[str, AgentSource] = field(default_factory=dict)
    # the strongest rule known, which is compared with too; None: only the reference
    strongest: str | None = None
    paired: list[str] = field(default_factory=list)  # metrics whose paired differences are shown
    # metrics whose ratio reference / policy is shown, as publications print it
    ratios: list[str] = field(default_factory=list)
    # between what the best possible policy lies, for tables; None: not measured
    clairvoyant: ClairvoyantSettings | None = None
    # "fsn" (chapter 5), "abcd" (chapter 4) or neither, against the reference
    scores: Literal["none", "fsn", "abcd"] = "none"
    # how tables call the policies; a rule's own title if left out
    titles: dict[str, str] = field(default_factory=dict)
    table: bool = True  # whether tables are shown
    # a table for each metric with all scenarios, in the place of tables for each scenario
    overview: bool = False
    # [policy, other, metric] each: paired differences, policy minus other, that an overview shows in a table
    # of their own (`paired` compares every agent with the reference). The other is a rule, or an agent with
    # as many seeds: the first of one is paired with the first of the other
    differences: list[tuple[str, str, str]] = field(default_factory=list)
    figures: dict[str, FigureSettings] = field(default_factory=dict)  # by the name of the file without ".png"
    # what is not played, as its episodes are published in docs/results/STUDY: trained agents that there are
    # no runs of; everything, to compute means and intervals again; or the named policies, when only others
    # have changed (rules among them replay their first episodes, which must come out as published)
    stored: Literal["none", "agents", "all"] | list[str] = "none"

    @property
    def taken(self) -> Sequence[str]:
        """Policies named by `stored`."""
        return () if isinstance(self.stored, str) else self.stored

    def title_of(self, policy: str) -> str:
        """Name of a policy in tables."""
        if policy in self.titles:
            return self.titles[policy]
        return RULES[policy].title if policy in RULES else policy

    def parts_of(self, scenario: str) -> dict[str, ScenarioSettings]:
        """The worlds of a scenario by id: one for each of its draws, or itself."""
        settings = self.scenarios[scenario]
        return {f"{scenario} {draw}": settings.drawn(draw) for draw in settings.draws} or {scenario: settings}

    def by_world(self) -> ExperimentSettings:
        """The same with each draw as a scenario of its own."""
        parts = [self.parts_of(name) for name in self.scenarios]
        return dataclasses.replace(self, scenarios={key: one for part in parts for key, one in part.items()})

    def others(self, policy: str) -> list[str]:
        """Policies that a policy is compared with."""
        strongest = [] if self.strongest is None else [self.strongest]
        named = [other for one, other, _ in self.differences if one == policy]
        return list(dict.fromkeys([self.reference, *strongest, *named]))

    def check(self) -> None:
        """Refuse names that lead nowhere, in one line. Raises UsageError: naming the key."""
        for rule in self.rules:
            if rule not in RULES:
                raise UsageError(f"experiment.rules names {rule!r}: rules are {', '.join(RULES)}")
        for key, name in (("reference", self.reference), ("strongest", self.strongest)):
            if name is not None and name not in self.rules:
                raise UsageError(f"experiment.{key} is {name!r}: expected one of its rules {self.rules}")
        if not self.scenarios:
            raise UsageError("experiment.scenarios is empty: name at least one world")
        for scenario in self.clairvoyant.skipped if self.clairvoyant is not None else []:
            if scenario not in self.scenarios:
                raise UsageError(
                    f"experiment.clairvoyant.skipped names scenario {scenario!r}: "
                    f"expected some of {', '.join(self.scenarios)}"
                )
        drawn = any(settings.draws for settings in self.scenarios.values())
        if self.taken and (drawn or self.clairvoyant is not None):
            raise UsageError(
                f"experiment.stored names policies, and {self.name} has draws or plans: measure it as a whole"
            )
        for scenario, settings in self.scenarios.items():
            if settings.draws and (self.figures or self.clairvoyant is not None):
                raise UsageError(
                    f"experiment.scenarios.{scenario} has draws: expected no figures and no plans, "
                    "which are of one world"
                )
            known = [*self.agents, *settings.agents, *self.rules]
            for policy in self.taken:
                if policy not in known:
                    raise UsageError(
                        f"experiment.stored names {policy!r}: expected none | agents | all, or policies of "
                        f"scenario {scenario}: {', '.join(known)}"
                    )
            for policy, other, metric in self.differences:
                if not {policy, other} <= set(known) or policy == other or metric not in self.metrics:
                    raise UsageError(
                        f"experiment.differences names {[policy, other, metric]}: expected two policies of "
                        f"scenario {scenario} ({', '.join(known)}) and a metric ({', '.join(self.metrics)})"
                    )
            if self.clairvoyant is not None and self.clairvoyant.base not in known:
                raise UsageError(
                    f"experiment.clairvoyant.base is {self.clairvoyant.base!r}: "
                    f"expected a policy of scenario {scenario}: {', '.join(known)}"
                )
        for file, figure in self.figures.items():
            for scenario in figure.scenarios or []:
                if scenario not in self.scenarios:
                    raise UsageError(
                        f"experiment.figures.{file} names scenario {scenario!r}: "
                        f"expected one of {', '.join(self.scenarios)}"
                    )
            if figure.kind == "sorted_episodes" and not (figure.sort_policy and figure.sort_metric):
                raise UsageError(f"experiment.figures.{file} needs sort_policy and sort_metric")
            if figure.kind in ("sorted_episodes", "training_curves") and not figure.metrics:
                raise UsageError(f"experiment.figures.{file} needs metrics")

    def agents_of(self, scenario: str) -> dict[str, list[Trained]]:
        """The policies of every trained agent in a scenario; with `stored`, of those that there are runs of.

        Raises:
            UsageError: if an agent is not trained, or not to its end, or if two whose difference is asked for
                have other numbers of seeds.
        """
        found: dict[str, list[Trained]] = {}
        for name, source in {**self.agents, **self.scenarios[scenario].agents}.items():
            if name in self.taken:
                continue
            try:
                found[name] = find_trained(name, source, self.trainings)
            except NotTrainedError:
                if self.stored == "none":
                    raise
        for one, other, _ in self.differences:
            if one in found and other in found and len(found[one]) != len(found[other]):
                raise UsageError(
                    f"experiment.differences names {one} with {len(found[one])} seeds and {other} with "
                    f"{len(found[other])} in scenario {scenario}: train as many of each"
                )
        return found


def read_experiment(values: Mapping[str, Any]) -> ExperimentSettings:
    """A checked experiment from the key `experiment` of a composed configuration. Raises UsageError."""
    settings = typed(ExperimentSettings, values, "experiment")
    settings.check()
    return settings


def scenario_env(scenario: ScenarioSettings) -> dict[str, Any]:
    """The resolved group `env` of a scenario. Raises UsageError if its words do not compose."""
    return copy.deepcopy(_composed_env(tuple(scenario.env)))


@cache  # it takes a fifth of a second, and each scenario is asked for several times
def _composed_env(words: tuple[str, ...]) -> dict[str, Any]:
    env: dict[str, Any] = compose_values("evaluate", words)["env"]
    return env
