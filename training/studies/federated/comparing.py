"""What pages say of policies played on the same episodes: means, intervals, paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from training.evaluation.hierarchical import hierarchical_ratio_interval
from training.evaluation.statistics import FloatVector, bootstrap_interval
from training.studies.federated.playing import Episodes

Kind = Literal["difference", "percent"]
"""Of two policies: their difference, or that in per cent of the second one's mean."""


def savings(episodes: Episodes, on_demand: Episodes) -> list[float]:
    """Per cent that each episode costs less than on demand."""
    pairs = zip(episodes["cost_usd"], on_demand["cost_usd"], strict=True)
    return [100 * (1 - cost / reference) for cost, reference in pairs]


def estimate(values: Sequence[float] | FloatVector) -> dict[str, Any]:
    """Mean and 95 % interval (bootstrap over episodes)."""
    sample = np.asarray(values, np.float64)
    interval = bootstrap_interval(sample)
    return {"mean": float(sample.mean()), "interval": [interval.low, interval.high]}


def means(episodes: Episodes, metrics: Sequence[str]) -> dict[str, Any]:
    """`estimate` of every metric."""
    return {metric: estimate(episodes[metric]) for metric in metrics}


def paired(ours: Episodes, theirs: Episodes, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """What lies between two policies on the same episodes, with 95 % intervals.

    Per cents are ratios of means, as a mean of ratios would count cheap and dear episodes alike.

    Raises:
        ValueError: if they have not played the same number of episodes.
    """
    found = {}
    for metric, kind in kinds.items():
        first, second = np.asarray(ours[metric], np.float64), np.asarray(theirs[metric], np.float64)
        if len(first) != len(second):
            raise ValueError(f"paired samples need the same episodes: got {len(first)} and {len(second)}")
        between = estimate if kind == "difference" else partial(_per_cent, second)
        found[metric] = between(first - second)
    return found


def _per_cent(of: FloatVector, difference: FloatVector) -> dict[str, Any]:
    interval = hierarchical_ratio_interval(difference[None], of)
    if interval is None:
        raise ValueError("per cents need a reference above 0")
    return {
        "mean": float(100 * difference.mean() / of.mean()),
        "interval": [100 * interval.low, 100 * interval.high],
    }
