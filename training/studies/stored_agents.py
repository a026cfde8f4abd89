"""Trained agents whose runs are gone: their episodes, as they stand next to a page.

An experiment writes every episode of what it shows (`shown.csv`, published as docs/results/STUDY/NAME.csv).
With these a rule can be added to a table, or an interval computed in another way, without training again.
That the episodes are still those of the world is checked: suite hashes must agree, and every published rule
is played again and must come to its published values exactly.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.config import UsageError
from training.studies.evaluations import Played
from training.studies.experiment import ExperimentSettings
from training.studies.scenario import Measured, ScenarioResult

NEED_RUNS = ("training_curves", "job_scatter", "category_counts")
"""Kinds of figures that episodes are not enough for."""


@dataclass(frozen=True)
class StoredAgents:
    """The published episodes of one experiment.

    Attributes:
        path: the CSV file.
        summary: the experiment's stored summary.
        episodes: by scenario, policy and training seed ("" for a rule): rows in the suite's order.
    """

    path: Path
    summary: Mapping[str, Any]
    episodes: Mapping[tuple[str, str, str], Sequence[Mapping[str, str]]]

    @property
    def commit(self) -> str:
        """The version of the code that played the agents."""
        commit: str = self.summary.get("agents_commit", self.summary["commit"])
        return commit

    def added_to(self, result: ScenarioResult, scenario: str, settings: ExperimentSettings) -> ScenarioResult:
        """The rules of a scenario, as just played, with the published agents before them.

        Raises:
            UsageError: if an agent was not published, or the published episodes are of another world.
        """
        published = self.summary["scenarios"].get(scenario)
        if published is None or published["suite_hash"] != result.hash:
            held = "no such scenario" if published is None else f"suite hash {published['suite_hash'][:12]}"
            raise UsageError(
                f"{self.path} has {held} for {scenario}, whose suite hash is {result.hash[:12]}: "
                "its episodes are other ones, so measure the agents again"
            )
        for name, measured in result.policies.items():
            if name in published["policies"]:
                self._must_agree(scenario, name, measured)
        agents = {}
        for name in {**settings.agents, **settings.scenarios[scenario].agents}:
            if name not in published["policies"]:
                raise UsageError(f"{self.path} has no agent {name} in {scenario}: measure it from its runs")
            facts = tuple(published["policies"][name]["checkpoints"])
            seeds = tuple(self._played(scenario, name, str(fact["seed"])) for fact in facts)
            agents[name] = Measured(name, seeds, facts)
        return dataclasses.replace(result, policies={**agents, **result.policies})

    def _played(self, scenario: str, policy: str, seed: str) -> Played:
        rows = self.episodes[scenario, policy, seed]
        names = [name for name in rows[0] if name not in ("scenario", "policy", "seed", "episode")]
        return Played({name: [float(row[name]) for row in rows] for name in names}, [])

    def _must_agree(self, scenario: str, rule: str, measured: Measured) -> None:
        for metric, before in self._played(scenario, rule, "").metrics.items():
            now = measured.seeds[0].metrics[metric]
            if list(now) != list(before):
                raise UsageError(
                    f"the rule {rule} no longer plays the episodes of {self.path} ({scenario}, {metric}): "
                    "the world has changed since, so measure the agents again"
                )


def read_stored_agents(folder: Path, settings: ExperimentSettings) -> StoredAgents:
    """The published episodes of an experiment.

    Args:
        folder: where its study publishes, e.g. docs/results/liu2022.
        settings: the experiment.

    Raises:
        UsageError: if there are none, or a figure needs the trained policies themselves.
    """
    for file, figure in settings.figures.items():
        if figure.kind in NEED_RUNS:
            raise UsageError(
                f"{file} shows the trained policies themselves: measure {settings.name} from their runs"
            )
    path = folder / f"{settings.name}.csv"
    try:
        summary = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        with path.open(newline="", encoding="utf-8") as table:
            rows = list(csv.DictReader(table))
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename} does not exist: nothing was published of {settings.name}, "
            "so leave experiment.stored_agents out"
        ) from error
    episodes: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for row in rows:
        episodes.setdefault((row["scenario"], row["policy"], row["seed"]), []).append(row)
    return StoredAgents(path, summary, episodes)
