"""An experiment's results as files: every number as JSON, every episode as CSV."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

from training.config import provenance
from training.evaluation.episodes import Suite
from training.files import write_csv
from training.studies.experiment import ExperimentSettings
from training.studies.scenario import ScenarioResult, bounds_summary, policy_summary

PLANNED = "clairvoyant plan"
UNHINDERED = "no waiting, no misses"


def experiment_summary(
    settings: ExperimentSettings, suite: Suite, results: Mapping[str, ScenarioResult], command: str
) -> dict[str, object]:
    """Everything that the page shows of an experiment, as plain values."""
    shown = list(dict.fromkeys([*settings.metrics, *settings.paired, *settings.ratios]))
    return {
        **provenance(),
        "study": settings.study,
        "experiment": settings.name,
        "title": settings.title,
        "command": command,
        "suite": dataclasses.asdict(suite),
        "reference": settings.reference,
        "strongest": settings.strongest,
        "shows": {
            "metrics": settings.metrics,
            "paired": settings.paired,
            "ratios": settings.ratios,
            "scores": settings.scores,
            "table": settings.table,
            "overview": settings.overview,
            "differences": [list(one) for one in settings.differences],
        },
        "scenarios": {key: _scenario(settings, key, result, shown) for key, result in results.items()},
        "figures": {file: figure.caption for file, figure in settings.figures.items()},
    }


def _scenario(
    settings: ExperimentSettings, key: str, result: ScenarioResult, shown: list[str]
) -> dict[str, object]:
    scenario = settings.scenarios[key]
    return {
        "title": scenario.title,
        "env": scenario.env,
        "suite_hash": result.hash,
        "higher_is_better": {metric: result.higher_is_better(metric) for metric in shown},
        "published": scenario.published,
        "titles": {name: settings.title_of(name) for name in (*result.policies, *scenario.published)},
        "policies": {
            name: policy_summary(result, name, shown, settings.others(name)) for name in result.policies
        },
        "bounds": bounds_summary(result, settings.reference, shown, settings.strongest),
    }


def write_experiment_episodes(
    settings: ExperimentSettings, results: Mapping[str, ScenarioResult], path: Path, every_metric: bool
) -> None:
    """One CSV row per scenario, policy, training seed and episode, the bounds last. Raises WriteError.

    Args:
        settings: the experiment.
        results: by scenario.
        path: the file.
        every_metric: all metrics of the world, or only those that the experiment shows.
    """
    first = next(iter(results.values()))
    named = [*settings.metrics, *settings.paired, *settings.ratios]
    named += [metric for figure in settings.figures.values() for metric in figure.metrics]
    metrics = list(first.spec.metrics) if every_metric else list(dict.fromkeys(named))
    header = ["scenario", "policy", "seed", "episode", *metrics]
    write_csv(path, header, _rows(results, metrics))


def _rows(results: Mapping[str, ScenarioResult], metrics: list[str]) -> Iterable[list[object]]:
    for scenario, result in results.items():
        for name, measured in result.policies.items():
            for k, played in enumerate(measured.seeds):
                seed = measured.checkpoints[k]["seed"] if measured.checkpoints else ""
                columns = [played.metrics[metric] for metric in metrics]
                for episode, values in enumerate(zip(*columns, strict=True)):
                    yield [scenario, name, seed, episode, *values]
        if result.bounds is not None:
            columns = [result.bounds.planned.metrics[metric] for metric in metrics]
            for episode, values in enumerate(zip(*columns, strict=True)):
                yield [scenario, PLANNED, "", episode, *values]
            objective = result.spec.metrics[0]
            for episode, value in enumerate(result.bounds.unhindered or ()):
                values = tuple(value if metric == objective else "" for metric in metrics)
                yield [scenario, UNHINDERED, "", episode, *values]
