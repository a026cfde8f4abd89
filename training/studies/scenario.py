"""The measured numbers of one scenario: every policy, every training seed, every episode."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.config import provenance
from spotweave.training.evaluation.episodes import Suite
from spotweave.training.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    clustered_interval,
    dominance,
    estimate,
    hierarchical_interval,
    hierarchical_ratio_interval,
    liu_scores,
)
from spotweave.training.files import write_csv
from spotweave.training.studies.bounds import Bounds
from spotweave.training.studies.evaluations import Played
from spotweave.training.studies.experiment import ExperimentSettings

Table = Floats  # (seeds, episodes)


@dataclass(frozen=True)
class Measured:
    """A policy's episodes: of each training seed, or once for a rule."""

    name: str  # the policy
    seeds: tuple[Played, ...]  # one entry per trained policy; exactly one for a rule
    # path, SHA-256 and facts of each trained policy; empty for a rule
    checkpoints: tuple[Mapping[str, object], ...] = ()

    def table(self, metric: str) -> Table:
        """(seeds, episodes) one metric."""
        return np.stack([played.values(metric) for played in self.seeds])


@dataclass(frozen=True)
class ScenarioResult:
    """Every policy on the same episodes of one world."""

    spec: WorldSpec  # the world's facts
    env: Mapping[str, Any]  # its resolved configuration
    hash: str  # of the suite in this world
    policies: Mapping[str, Measured]  # by name, agents first
    bounds: Bounds | None = None  # of the objective; None if they were not asked for
    # of each episode, the recorded day on which it starts, or the draw of its world: such episodes have
    # something in common; None where they have not
    groups: tuple[int, ...] | None = None

    def higher_is_better(self, metric: str) -> bool:
        """Whether higher values of a metric are better."""
        return self.spec.higher_is_better[self.spec.metrics.index(metric)]


Results = Mapping[str, ScenarioResult]  # by scenario


def pooled(parts: Sequence[ScenarioResult], episodes: int) -> ScenarioResult:
    """Several worlds as one scenario: the `episodes` of one after those of the other, a group each."""
    first = parts[0]
    if len(parts) == 1:
        return first
    policies: dict[str, Measured] = {}
    for name in first.policies:
        if all(name in part.policies for part in parts):
            policies[name] = _one_after_another([part.policies[name] for part in parts])
    return dataclasses.replace(
        first,
        hash=joined_hash([part.hash for part in parts]),
        policies=policies,
        groups=tuple(k for k in range(len(parts)) for _ in range(episodes)),
    )


def joined_hash(hashes: Sequence[str]) -> str:
    """The suite hash of several worlds as one scenario."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _one_after_another(parts: Sequence[Measured]) -> Measured:
    """A policy's episodes in several worlds; `draws` has the checkpoints where each world has its own."""
    seeds = []
    for many in zip(*(part.seeds for part in parts), strict=True):
        metrics = {
            metric: [value for one in many for value in one.metrics[metric]] for metric in many[0].metrics
        }
        seeds.append(Played(metrics, [count for one in many for count in one.decisions]))
    checkpoints: list[Mapping[str, object]] = []
    for facts in zip(*(part.checkpoints for part in parts), strict=True):
        same = all(fact == facts[0] for fact in facts)
        checkpoints.append(facts[0] if same else {"seed": facts[0]["seed"], "draws": [*facts]})
    return Measured(parts[0].name, tuple(seeds), tuple(checkpoints))


def mean_interval(table: Table, groups: Sequence[int] | None = None) -> Interval:
    """95 % interval of the mean: over seeds and episodes, or over episodes if there is one seed only.

    With `groups` (more than one) groups of episodes are resampled too.
    """
    if groups is not None and len(set(groups)) > 1:
        return clustered_interval(table, groups)
    return bootstrap_interval(table[0]) if len(table) == 1 else hierarchical_interval(table)


def policy_summary(
    result: ScenarioResult, policy: str, metrics: Sequence[str], others: Sequence[str]
) -> dict[str, object]:
    """Everything a table says of a policy, as plain values. Intervals are [low, high], 95 %."""
    measured = result.policies[policy]
    means = {}
    for metric in metrics:
        table = measured.table(metric)
        interval = mean_interval(table, result.groups)
        means[metric] = {
            "mean": float(table.mean()),
            "interval": [interval.low, interval.high],
            "per_seed": table.mean(axis=1).tolist(),
        }
    return {
        "trained": bool(measured.checkpoints),
        "seeds": len(measured.seeds),
        "checkpoints": [dict(facts) for facts in measured.checkpoints],
        "metrics": means,
        "against": {
            other: _against(result, measured, result.policies[other], metrics)
            for other in others
            if other != policy
        },
    }


def _against(
    result: ScenarioResult, measured: Measured, other: Measured, metrics: Sequence[str]
) -> dict[str, object]:
    differences: dict[str, object] = {}
    ratios: dict[str, float | None] = {}
    for metric in metrics:
        table, baseline = measured.table(metric), other.table(metric)
        difference = table - baseline
        interval = mean_interval(difference, result.groups)
        gain = float(difference.mean()) * (1.0 if result.higher_is_better(metric) else -1.0)
        verdict = "unclear" if not interval.excludes(0.0) else ("better" if gain > 0 else "worse")
        differences[metric] = {
            "mean": float(difference.mean()),
            "interval": [interval.low, interval.high],
            "verdict": verdict,
        }
        means = float(baseline.mean()), float(table.mean())
        # The form of the thesis: the mean of the baseline over the mean of the policy.
        ratios[metric] = means[0] / means[1] if min(means) > 0.0 else None
    facts: dict[str, object] = {"difference": differences, "ratio": ratios}
    if len(other.seeds) > 1:
        return facts  # what follows counts episodes against a rule
    # Published episodes have the metrics of their tables only.
    known = set(measured.seeds[0].metrics) & set(other.seeds[0].metrics)
    if {"tmdl", "ajer"} <= known:
        facts["fsn"] = _dominance(measured, other)
    if {"tmdl", "ajdr"} <= known:
        facts["scores"] = _scores(measured, other)
    return facts


def _pairs(measured: Measured, other: Measured, delay: str) -> list[list[Table]]:
    """For each seed: misses, the other's misses, delay, the other's delay."""
    misses, delays = other.table("tmdl")[0], other.table(delay)[0]
    return [[played.values("tmdl"), misses, played.values(delay), delays] for played in measured.seeds]


def _dominance(measured: Measured, other: Measured) -> dict[str, object]:
    """F/S/N (Liu 2022, section 5.4) per seed and on average."""
    counts = [dominance(*samples) for samples in _pairs(measured, other, "ajer")]
    per_seed = [[count.fully, count.semi, count.non] for count in counts]
    return {"mean": np.mean(per_seed, axis=0).tolist(), "per_seed": per_seed}


def _scores(measured: Measured, other: Measured) -> dict[str, object] | None:
    """Score-A to D (Liu 2022, section 4.3) per seed and on average; None where a delay is negative."""
    samples = _pairs(measured, other, "ajdr")
    if min(min(ours.min(), theirs.min()) for _, _, ours, theirs in samples) < 0.0:
        return None
    scores = [liu_scores(*sample) for sample in samples]
    return {
        letter: {
            "mean": float(np.mean([getattr(score, letter) for score in scores])),
            "per_seed": [getattr(score, letter) for score in scores],
        }
        for letter in "abcd"
    }


# How much of what perfect foresight would gain a policy gains: the numbers, from measured episodes.


def bounds_summary(
    result: ScenarioResult, reference: str, metrics: Sequence[str], strongest: str | None = None
) -> dict[str, object] | None:
    """What tables say of the bounds of a scenario, as plain values; None if they were not measured."""
    bounds = result.bounds
    if bounds is None:
        return None
    objective, first = result.spec.metrics[0], slice(bounds.episodes)
    baseline = result.policies[reference].table(objective)[:, first]
    policies: dict[str, dict[str, object]] = {}
    for name, measured in result.policies.items():
        table = measured.table(objective)[:, first]
        policies[name] = {
            "mean": float(table.mean()),
            "per_seed": table.mean(axis=1).tolist(),
            "closed": _closed(result, bounds, name, reference),
        }
        if strongest is not None:
            policies[name]["closed_from_strongest"] = _closed(result, bounds, name, strongest)
    unhindered = None if bounds.unhindered is None else np.array(bounds.unhindered)
    return {
        "objective": objective,
        "base": dict(bounds.base),
        "further": bounds.further,
        "episodes": bounds.episodes,
        "planned": {metric: _mean(bounds.planned.values(metric)) for metric in metrics},
        "room": _difference(bounds.planned.values(objective) - baseline[0]),
        "unhindered": None
        if unhindered is None
        else {**_mean(unhindered), "first_mean": float(unhindered[first].mean())},
        "policies": policies,
    }


def _closed(result: ScenarioResult, bounds: Bounds, name: str, base: str) -> dict[str, object] | None:
    """The share of the gap from `base` to the plan that a policy closes; None for `base` itself."""
    if name == base:
        return None
    objective, first = result.spec.metrics[0], slice(bounds.episodes)
    sign = 1.0 if result.higher_is_better(objective) else -1.0
    ours, theirs = (result.policies[policy].table(objective)[:, first] for policy in (name, base))
    return closed_share(sign * (ours - theirs), sign * (bounds.planned.values(objective) - theirs[0]))


def closed_share(gained: Table, room: Floats) -> dict[str, object] | None:
    """The share of what there is to gain that a policy gains: the ratio of the two means over episodes.

    A ratio of means, not a mean of ratios: an episode with little to gain would otherwise count as much as
    one with a lot, and its ratio would be mostly noise. Intervals are those of `hierarchical_ratio_interval`.

    Args:
        gained: (seeds, episodes) by how much each seed is better than the reference.
        room: (episodes,) by how much the plan is; where it is not, there is no share.
    """
    if room.mean() <= 0.0:
        return None
    interval = hierarchical_ratio_interval(gained, room)
    return {
        "share": float(gained.mean() / room.mean()),
        "interval": None if interval is None else [interval.low, interval.high],
        "per_seed": (gained.mean(axis=1) / room.mean()).tolist(),
    }


def _difference(values: Floats) -> dict[str, object]:
    """A paired difference: "clear" says whether its interval excludes 0."""
    found = estimate(values)
    return {**found, "clear": Interval(*found["interval"]).excludes(0.0)}


def _mean(values: Floats) -> dict[str, object]:
    return {**estimate(values), "per_seed": [float(values.mean())]}


# An experiment's results as files: every number as JSON, every episode as CSV.


PLANNED = "clairvoyant plan"
UNHINDERED = "no waiting, no misses"


def experiment_summary(
    settings: ExperimentSettings, suite: Suite, results: Results, command: str
) -> dict[str, Any]:
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
    settings: ExperimentSettings, results: Results, path: Path, every_metric: bool
) -> None:
    """One CSV row per scenario, policy, training seed and episode, the bounds last. Raises WriteError.

    With `every_metric` all metrics that every world has, else only those that the experiment shows.
    """
    specs = [result.spec for result in results.values()]
    common = [name for name in specs[0].metrics if all(name in spec.metrics for spec in specs)]
    named = [*settings.metrics, *settings.paired, *settings.ratios]
    named += [metric for figure in settings.figures.values() for metric in figure.metrics]
    metrics = common if every_metric else list(dict.fromkeys(named))
    header = ["scenario", "policy", "seed", "episode", *metrics]
    write_csv(path, header, _rows(results, metrics))


def _rows(results: Results, metrics: list[str]) -> Iterable[list[object]]:
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
