"""Several policies on one suite: their runs, the paired statistics, and the files that keep them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.engine import Engine
from spotweave.training.evaluation.episodes import (
    EpisodeResult,
    Latency,
    Suite,
    SuitePlayer,
    measure_latency,
    suite_hash,
)
from spotweave.training.evaluation.statistics import (
    Interval,
    Paired,
    Summary,
    compare_paired,
    dominance,
    liu_scores,
    summarise,
)
from spotweave.training.files import write_csv
from spotweave.training.progress import PlayProgress

RANDOMNESS = (
    "value networks act greedily; every other random choice of a policy comes from the episode's own "
    "'policy' stream, so a second run gives the same numbers"
)


@dataclass(frozen=True)
class PolicyRun:
    """One policy's episodes, in the suite's order, and the time its decisions take."""

    name: str
    results: tuple[EpisodeResult, ...]
    latency: Latency


@dataclass(frozen=True)
class Comparison:
    """Runs of several policies on the same episodes; the first is the reference."""

    spec: WorldSpec  # the world's facts; `spec.metrics[0]` is the objective
    suite: Suite  # the episodes
    hash: str  # `suite_hash` of the two
    runs: tuple[PolicyRun, ...]  # one per policy, at least one

    @property
    def reference(self) -> PolicyRun:
        """The policy that is compared with each other one."""
        return self.runs[0]

    @property
    def objective(self) -> str:
        """Name of the metric that ranks policies."""
        return self.spec.metrics[0]

    def values(self, policy: str, metric: str) -> Floats:
        """(episodes,) one metric of one policy, in the suite's order."""
        for run in self.runs:
            if run.name == policy:
                return np.array([result.metrics[metric] for result in run.results])
        raise KeyError(policy)

    @cached_property
    def summaries(self) -> dict[str, dict[str, Summary]]:
        """Summaries by policy, then metric."""
        return {
            run.name: {metric: summarise(self.values(run.name, metric)) for metric in self.spec.metrics}
            for run in self.runs
        }

    @cached_property
    def paired(self) -> dict[str, dict[str, Paired]]:
        """The reference against each other policy, by that policy, then metric."""
        directions = dict(zip(self.spec.metrics, self.spec.higher_is_better, strict=True))
        return {
            run.name: {
                metric: compare_paired(
                    self.values(self.reference.name, metric), self.values(run.name, metric), higher
                )
                for metric, higher in directions.items()
            }
            for run in self.runs[1:]
        }

    @property
    def ranking(self) -> list[str]:
        """Policies from the best to the worst mean objective."""
        sign = -1.0 if self.spec.higher_is_better[0] else 1.0
        return sorted(self.summaries, key=lambda name: sign * self.summaries[name][self.objective].mean)


def compare_policies(
    player: SuitePlayer,
    engine: Engine | None,
    policies: Sequence[Policy],
    suite: Suite,
    progress: PlayProgress | None = None,
) -> Comparison:
    """Run every policy on every episode of the suite; the first policy is the reference.

    Raises:
        ValueError: for no policy, two of one name, fewer than 2 episodes, or what `run_suite` refuses.
    """
    names = [policy.name for policy in policies]
    if not names:
        raise ValueError("no policy to measure: name at least one in policies=")
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"policy {double!r} is named twice: give each policy once")
    if suite.episodes < 2:
        raise ValueError(f"an interval needs at least 2 episodes, got episodes={suite.episodes}")
    first = suite.episode_keys()[0]
    world = player.world()
    latencies = [measure_latency(world, policy, first) for policy in policies]
    played = player.play(engine, [(0, policy) for policy in policies], suite, progress)
    runs = tuple(
        PolicyRun(name, tuple(results), latency)
        for name, results, latency in zip(names, played, latencies, strict=True)
    )
    return Comparison(world.spec, suite, suite_hash(world, suite), runs)


def comparison_summary(comparison: Comparison, provenance: Mapping[str, object]) -> dict[str, object]:
    """What summary.json holds: provenance, then every number of the report. Intervals are [low, high]."""
    spec = comparison.spec
    return {
        **provenance,
        "world": {
            "name": spec.name,
            "time_unit": spec.time_unit,
            "objective": comparison.objective,
            "higher_is_better": dict(zip(spec.metrics, spec.higher_is_better, strict=True)),
        },
        "suite": {**dataclasses.asdict(comparison.suite), "hash": comparison.hash},
        "randomness": RANDOMNESS,
        "reference": comparison.reference.name,
        "policies": {run.name: _run_summary(comparison, run) for run in comparison.runs},
        "paired": {
            other: {metric: _flat(paired) for metric, paired in by_metric.items()}
            for other, by_metric in comparison.paired.items()
        },
        "liu_2022": liu_measures(comparison),
    }


def _run_summary(comparison: Comparison, run: PolicyRun) -> dict[str, object]:
    return {
        "metrics": {m: _flat(s) for m, s in comparison.summaries[run.name].items()},
        "return_mean": float(np.mean([result.episode_return for result in run.results])),
        "decisions_mean": float(np.mean([result.decisions for result in run.results])),
        "decision_latency": dataclasses.asdict(run.latency),
    }


def _flat(record: Summary | Paired) -> dict[str, object]:
    fields: dict[str, object] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        fields[field.name] = [value.low, value.high] if isinstance(value, Interval) else value
    return fields


def liu_measures(comparison: Comparison) -> dict[str, dict[str, object]]:
    """F/S/N and Score A-D of the reference against each other policy, where the world has both metrics.

    Score A-D need a delay that cannot be negative (chapter 4: AJDR on homogeneous clusters); where one is,
    `scores` is None.
    """
    delay = next((name for name in ("ajdr", "ajer") if name in comparison.spec.metrics), None)
    if delay is None or "tmdl" not in comparison.spec.metrics:
        return {}
    ours = comparison.reference.name
    measures: dict[str, dict[str, object]] = {}
    for run in comparison.runs[1:]:
        samples = [
            comparison.values(policy, metric) for metric in ("tmdl", delay) for policy in (ours, run.name)
        ]
        defined = delay == "ajdr" and min(samples[2].min(), samples[3].min()) >= 0.0
        scores = dataclasses.asdict(liu_scores(*samples)) if defined else None
        measures[run.name] = {"fsn": str(dominance(*samples)), "scores": scores}
    return measures


def write_episodes(comparison: Comparison, path: Path) -> None:
    """One CSV row per policy and episode, with every metric. Raises WriteError."""
    header = ["policy", "episode", "seed", "split", "decisions", "return", *comparison.spec.metrics]
    rows = (
        [
            run.name,
            result.key.index,
            result.key.seed,
            result.key.split,
            result.decisions,
            result.episode_return,
            *result.metrics.values(),
        ]
        for run in comparison.runs
        for result in run.results
    )
    write_csv(path, header, rows)
