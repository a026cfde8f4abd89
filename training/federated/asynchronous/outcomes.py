"""What trainings with several seeds amount to: accuracy, time, speed-up against the reference, staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.evaluation.statistics import compare_paired
from training.federated.asynchronous.virtual_time import MILESTONE_ROUNDS, Training, milestone_slices

EI_EXPONENT = 0.2
"""Of the time in the efficiency index, chapter 6."""

Trainings = Mapping[str, Sequence[Training]]
"""By method, one per seed."""


def efficiency_index(training: Training) -> NDArray[np.float64]:
    """EI(u) = a(u) / t(u)**0.2 after each round, (rounds,)."""
    index: NDArray[np.float64] = training.column("accuracy") / training.column("time_slices") ** EI_EXPONENT
    return index


def final_accuracy(training: Training) -> float:
    """The mean of the last five rounds, as the thesis takes it."""
    return float(training.column("accuracy")[-MILESTONE_ROUNDS:].mean())


def summarise_trainings(trainings: Trainings, reference: str, milestones: Sequence[float]) -> dict[str, Any]:
    """Everything that tables show, per seed where it is measured per seed, as JSON can hold it.

    Args:
        trainings: by method; with the same seeds in the same order.
        reference: the method that speed-ups are against; may be missing.
        milestones: accuracies.

    Returns:
        By method: accuracy, training_slices, staleness and ei, each a list by seed; milestones, a list by
        seed for each (None where it was not reached); speed_up, the ratio of training times; and
        at_milestone, the highest one that the method and the reference reach with every seed, with its
        speed_up.
    """
    summary: dict[str, Any] = {}
    for name, runs in trainings.items():
        summary[name] = {
            "accuracy": [final_accuracy(run) for run in runs],
            "training_slices": [run.points[-1].time_slices for run in runs],
            "staleness": [float(run.column("staleness").mean()) for run in runs],
            "ei": [float(efficiency_index(run)[-1]) for run in runs],
            "milestones": {f"{m:g}": [milestone_slices(run, m) for run in runs] for m in milestones},
        }
    if reference in summary:
        for name in summary:
            _against(summary[name], summary[reference])
    return summary


def _against(measured: dict[str, Any], reference: Mapping[str, Any]) -> None:
    measured["speed_up"] = _ratio(reference["training_slices"], measured["training_slices"])
    measured["at_milestone"] = None
    for milestone, slices in measured["milestones"].items():
        theirs = reference["milestones"][milestone]
        if None not in slices and None not in theirs:
            measured["at_milestone"] = {"accuracy": float(milestone), "speed_up": _ratio(theirs, slices)}


def _ratio(reference: Sequence[float], own: Sequence[float]) -> dict[str, Any]:
    """How many times shorter: the geometric mean over seeds, with a 95 % interval of two or more."""
    if len(own) < 2:
        return {"mean": reference[0] / own[0], "interval": None}
    compared = compare_paired(reference, own, higher_is_better=False)
    # Times are positive, so there always is a ratio.
    assert compared.ratio is not None
    assert compared.ratio_interval is not None
    return {"mean": compared.ratio, "interval": [compared.ratio_interval.low, compared.ratio_interval.high]}
