"""What a participant sends: its update of the model, and the version of the model it began with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating]
"""All weights of a model in one row, (d,)."""


class UpdateError(ValueError):
    """An update, a shard or a setting that cannot be used; the message is one line."""


class UpdateId(NamedTuple):
    """Which update: the pair (p_i, r_alpha) of Liu 2022, "System Operation" of chapter 6.

    Attributes:
        participant: who computed it.
        base_version: number of the model that it was computed from.
        number: tells apart what a participant computed twice from one model; shards of the one and of the
            other do not sum to either.
    """

    participant: int
    base_version: int
    number: int = 0


@dataclass(frozen=True)
class Update:
    """One participant's contribution.

    Attributes:
        participant: who computed it.
        base_version: number of the model that it was computed from.
        values: (d,) a difference of weights, a gradient, or a whole model: what the aggregator `uploads`.
        samples: how many samples the participant holds; its weight p_n is in proportion.
        number: see UpdateId.
    """

    participant: int
    base_version: int
    values: Vector
    samples: int = 1
    number: int = 0

    @property
    def id(self) -> UpdateId:
        """What identifies it."""
        return UpdateId(self.participant, self.base_version, self.number)


def check_update(update: Update, model: Vector, version: int) -> None:
    """Refuse what would spoil the model.

    Raises:
        UpdateError: for another shape, NaN or infinity, no samples, or a model that does not exist yet.
    """
    who = f"update of participant {update.participant}"
    if update.values.shape != model.shape:
        raise UpdateError(
            f"{who} has shape {update.values.shape}: expected {model.shape}, the shape of the model"
        )
    if not np.isfinite(update.values).all():
        raise UpdateError(f"{who} holds NaN or infinity: expected finite numbers; lower its learning rate")
    if update.samples < 1:
        raise UpdateError(f"{who} counts {update.samples} samples: expected at least 1")
    if not 0 <= update.base_version <= version:
        raise UpdateError(
            f"{who} is based on model {update.base_version}: expected one of 0 to {version}, which exist"
        )


def weighted_mean(updates: Iterable[Update]) -> Vector:
    """The mean of updates by samples, sum(p_i D_i) / sum(p_i), (d,)."""
    chosen = list(updates)
    samples = np.array([update.samples for update in chosen], dtype=float)
    stacked = np.stack([update.values for update in chosen])
    mean: Vector = np.tensordot(samples / samples.sum(), stacked, axes=1)
    return mean
