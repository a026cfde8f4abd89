"""Checks of settings: what is wrong becomes one line."""

from __future__ import annotations

import math
from collections.abc import Sequence

from envs.simulation.world import WorldError


def require(holds: bool, given: str, expected: str) -> None:
    """Raise WorldError with both unless `holds`."""
    if not holds:
        raise WorldError(f"{given}: expected {expected}")


def at_least(config: object, group: str, lowest: float, *labels: str) -> None:
    """Numbers of a settings object that must not be below `lowest`, nor infinite."""
    for label in labels:
        value = getattr(config, label)
        require(lowest <= value < math.inf, f"{group}.{label} is {value}", f"a number >= {lowest}")


def bounds(config: object, group: str, lowest: float, *labels: str) -> None:
    """Pairs [a, b] of a settings object with lowest <= a <= b."""
    for label in labels:
        given: Sequence[float] = getattr(config, label)
        require(
            len(given) == 2 and lowest <= given[0] <= given[1] < math.inf,
            f"{group}.{label} is {list(given)}",
            f"two bounds [a, b] with {lowest:g} <= a <= b",
        )


def shares(config: object, group: str, *labels: str) -> None:
    """Numbers of a settings object that must lie in [0, 1]."""
    for label in labels:
        value = getattr(config, label)
        require(0.0 <= value <= 1.0, f"{group}.{label} is {value}", "a share in [0, 1]")
