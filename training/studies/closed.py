"""How much of what perfect foresight would gain a policy gains: the numbers, from measured episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.evaluation.hierarchical import hierarchical_ratio_interval
from training.evaluation.statistics import FloatVector, bootstrap_interval
from training.studies.bounds import Bounds
from training.studies.scenario import ScenarioResult, Table


def bounds_summary(
    result: ScenarioResult, reference: str, metrics: Sequence[str], strongest: str | None = None
) -> dict[str, object] | None:
    """What tables say of the bounds of a scenario, as plain values; None if they were not measured.

    Args:
        result: the scenario.
        reference: the policy from which gains are counted.
        metrics: those that are shown.
        strongest: the strongest rule, from which gains are counted too.
    """
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


def closed_share(gained: Table, room: FloatVector) -> dict[str, object] | None:
    """The share of what there is to gain that a policy gains: the ratio of the two means over episodes.

    A ratio of means, not a mean of ratios: an episode with little to gain would otherwise count as much as
    one with a lot, and its ratio would be mostly noise.

    Args:
        gained: (seeds, episodes) by how much each seed is better than the reference.
        room: (episodes,) by how much the plan is better than the reference.

    Returns:
        The share, its 95 % interval over seeds and episodes (see `hierarchical_ratio_interval`), and the
        share of each seed; None where the plan is not better than the reference.
    """
    if room.mean() <= 0.0:
        return None
    interval = hierarchical_ratio_interval(gained, room)
    return {
        "share": float(gained.mean() / room.mean()),
        "interval": None if interval is None else [interval.low, interval.high],
        "per_seed": (gained.mean(axis=1) / room.mean()).tolist(),
    }


def _difference(values: FloatVector) -> dict[str, object]:
    """A paired difference: "clear" says whether its interval excludes 0."""
    interval = bootstrap_interval(values)
    return {
        "mean": float(values.mean()),
        "interval": [interval.low, interval.high],
        "clear": interval.excludes(0.0),
    }


def _mean(values: FloatVector) -> dict[str, object]:
    interval = bootstrap_interval(values)
    return {
        "mean": float(values.mean()),
        "interval": [interval.low, interval.high],
        "per_seed": [float(values.mean())],
    }
