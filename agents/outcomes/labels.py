"""What decisions turned out to be worth: from the outcomes of their jobs to targets of the networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agents.outcomes.decide import Label, Weighing
from agents.outcomes.features import PROGRESS, STANDARD, STREAMING
from agents.outcomes.forward import HEADS

LOWEST, HIGHEST = -3.0, 8.0
"""Bounds of the targets in units of a decision's scale: a few disasters must not outweigh all else."""


def targets_of(label: Label, outcomes: NDArray[np.float64], weighing: Weighing) -> NDArray[np.float32]:
    """(N, HEADS) what the networks should have said of N decisions.

    The first three are what money, delay and owned hours came to beyond what the rule expected, in units of
    the decision's scale, each weighed as in the objective; the last is the share of the deadlines left that
    were missed, NaN where the job had none.

    Args:
        label: what was kept of the decisions.
        outcomes: (N, 5) what the jobs came to from the decision to their end: own misses in units of one of
            a one-shot job, mutual misses, delay hours, USD, owned executor-hours.
        weighing: prices of the objective.
    """
    found = np.empty((len(outcomes), HEADS), np.float32)
    scale = label.scale
    weights = (weighing.money, weighing.delay_usd_hour, weighing.owned_usd_hour)
    streaming = label.features[:, STREAMING] > 0
    # The rule counts the whole time of a one-shot job, the world what exceeds the standard time of the work.
    standard_hours = np.expm1(label.features[:, STANDARD]) * (1.0 - label.features[:, PROGRESS]) / 60.0
    expected = label.expected.copy()
    expected[:, 1] -= np.where(streaming, 0.0, standard_hours)
    for head, (column, weight) in enumerate(zip((3, 2, 4), weights, strict=True)):
        beyond = weight * (outcomes[:, column] - expected[:, head]) / scale
        found[:, head] = np.clip(beyond, LOWEST, HIGHEST)
    misses = outcomes[:, 0] * np.where(streaming, weighing.miss_usd / weighing.batch_miss_usd, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(misses / label.left, 0.0, 1.0)
    found[:, 3] = np.where(label.left > 0, share, np.nan)
    return found


def joined(labels: Sequence[Label]) -> Label:
    """All rows of several labels, in order."""
    return Label(
        np.concatenate([label.features for label in labels]),
        np.concatenate([label.expected for label in labels]),
        np.concatenate([label.scale for label in labels]),
        np.concatenate([label.left for label in labels]),
    )


def rows_of(label: Label, rows: NDArray[np.int64]) -> Label:
    """Some rows."""
    return Label(label.features[rows], label.expected[rows], label.scale[rows], label.left[rows])


def put_rows(label: Label, rows: NDArray[np.bool_], given: Label) -> None:
    """Replace the rows where `rows` is true."""
    label.features[rows], label.expected[rows] = given.features, given.expected
    label.scale[rows], label.left[rows] = given.scale, given.left
