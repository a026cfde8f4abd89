"""Published episodes in the place of played ones: of agents that there are no runs of, or of everything.

An experiment writes every episode of what it shows (`shown.csv`, published as docs/results/STUDY/NAME.csv).
With the agents' episodes a rule can be added to a table without training again; with those of some policies
the others are measured again; with all of them means and intervals are computed again. That the episodes are
still those of the world is checked: suite hashes must agree, and every published rule that is played must
come to its published values exactly; of named policies, the rules replay their first episodes only.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotweave.training.config import UsageError
from spotweave.training.studies.bounds import Bounds
from spotweave.training.studies.evaluations import Played
from spotweave.training.studies.experiment import ExperimentSettings
from spotweave.training.studies.scenario import PLANNED, UNHINDERED, Measured, ScenarioResult

NEED_RUNS = ("training_curves", "job_scatter", "category_counts")
"""Kinds of figures that episodes are not enough for."""
NOT_METRICS = ("scenario", "policy", "seed", "episode")


@dataclass(frozen=True)
class StoredEpisodes:
    """The published episodes of one experiment."""

    path: Path  # the CSV file
    summary: Mapping[str, Any]  # the experiment's stored summary
    # by scenario, policy or bound, and training seed ("" for a rule), in the suite's order
    rows: Mapping[tuple[str, str, str], Sequence[Mapping[str, str]]]

    def commit(self, policy: str) -> str:
        """The version of the code that played a policy's episodes."""
        commit: str = self.summary.get("stored", {}).get(policy, self.summary["commit"])
        return commit

    def added_to(self, result: ScenarioResult, scenario: str, settings: ExperimentSettings) -> ScenarioResult:
        """A scenario as just played, with the published episodes of what `settings.stored` names.

        Raises:
            UsageError: if something was not published, or the published episodes are of another world.
        """
        published = self.summary["scenarios"].get(scenario)
        if published is None or published["suite_hash"] != result.hash:
            held = "no such scenario" if published is None else f"suite hash {published['suite_hash'][:12]}"
            raise UsageError(
                f"{self.path} has {held} for {scenario}, whose suite hash is {result.hash[:12]}: "
                "its episodes are other ones, so measure everything again"
            )
        for name in settings.taken or settings.rules:
            if name in result.policies and name in published["policies"]:
                self._must_agree(scenario, name, result.policies[name])
        names = dict.fromkeys([*settings.agents, *settings.scenarios[scenario].agents, *settings.rules])
        played = {name: one for name, one in result.policies.items() if name not in settings.taken}
        found = {
            name: played.get(name) or self._measured(scenario, name, published["policies"], settings)
            for name in names
        }
        bounds = self._bounds(scenario, result, published, settings)
        return dataclasses.replace(result, policies={**found, **played}, bounds=bounds)

    def _measured(
        self, scenario: str, name: str, published: Mapping[str, Any], settings: ExperimentSettings
    ) -> Measured:
        if name not in published:
            raise UsageError(f"{self.path} has no policy {name} in {scenario}: measure it")
        facts = tuple(published[name]["checkpoints"])
        seeds = [str(fact["seed"]) for fact in facts] or [""]
        for metric in (*settings.metrics, *settings.paired, *settings.ratios):
            if metric not in self.rows[scenario, name, seeds[0]][0]:
                raise UsageError(f"{self.path} has no {metric} of {name} in {scenario}: measure it")
        return Measured(name, tuple(self._played(scenario, name, seed) for seed in seeds), facts)

    def _played(self, scenario: str, name: str, seed: str = "") -> Played:
        rows = self.rows[scenario, name, seed]
        metrics = [metric for metric in rows[0] if metric not in NOT_METRICS]
        return Played({metric: [float(row[metric]) for row in rows] for metric in metrics}, [0] * len(rows))

    def _bounds(
        self,
        scenario: str,
        result: ScenarioResult,
        published: Mapping[str, Any],
        settings: ExperimentSettings,
    ) -> Bounds | None:
        held, asked = published["bounds"], settings.clairvoyant
        planned = None if held is None else self._played(scenario, PLANNED)
        if settings.stored == "agents" and asked is not None and settings.table:
            # The same rule in the same world, which is checked: its plans are the same too.
            made = planned and (held["base"]["policy"], held["further"], len(planned.decisions))
            episodes = len(result.policies[asked.base].seeds[0].decisions)
            wanted = asked.base, asked.further, min(asked.episodes, episodes)
            if made != (None if scenario in asked.skipped else wanted):
                raise UsageError(
                    f"{self.path} has other plans in {scenario} (rule, arrivals ahead, episodes: {made}) "
                    f"than asked for ({wanted}): measure it without experiment.stored"
                )
        if planned is None:
            return None
        objective = result.spec.metrics[0]
        unhindered = None
        if (scenario, UNHINDERED, "") in self.rows:
            unhindered = tuple(float(row[objective]) for row in self.rows[scenario, UNHINDERED, ""])
        return Bounds(held["base"], held["further"], planned, unhindered)

    def _must_agree(self, scenario: str, rule: str, measured: Measured) -> None:
        for metric, before in self._played(scenario, rule).metrics.items():
            now = list(measured.seeds[0].metrics[metric])
            if now != list(before[: len(now)]):
                raise UsageError(
                    f"the rule {rule} no longer plays the episodes of {self.path} ({scenario}, {metric}): "
                    "the world has changed since, so measure the agents again"
                )


def read_stored(folder: Path, settings: ExperimentSettings) -> StoredEpisodes:
    """The published episodes of an experiment.

    Raises:
        UsageError: if there are none, or a figure or a plan needs the trained policies themselves.
    """
    plan = settings.clairvoyant
    if settings.stored == "agents" and plan is not None and plan.base not in settings.rules:
        raise UsageError(
            f"experiment.clairvoyant.base is {plan.base!r}, and stored agents cannot play: "
            f"expected one of the rules {settings.rules}"
        )
    for file, figure in settings.figures.items():
        if figure.kind in NEED_RUNS:
            raise UsageError(
                f"{file} shows the trained policies themselves: measure {settings.name} from their runs"
            )
    path = folder / f"{settings.name}.csv"
    try:
        summary = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        with path.open(newline="", encoding="utf-8") as table:
            lines = list(csv.DictReader(table))
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename} does not exist: nothing was published of {settings.name}, "
            "so leave experiment.stored out"
        ) from error
    rows: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for row in lines:
        rows.setdefault((row["scenario"], row["policy"], row["seed"]), []).append(row)
    return StoredEpisodes(path, summary, rows)
