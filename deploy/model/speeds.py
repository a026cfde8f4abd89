"""How far the speed of an instance counts for a task (Liu 2022, section 5.3)."""

from __future__ import annotations

from spotweave.envs.simulation.snapshot import REFERENCE_HETERO

ZETA = 10.0
"""A sensitivity of 1 lets speeds count within so much of a task's reference."""


def hetero_of(speed: float) -> float:
    """A speed on the scale of the snapshot, without the noise of the division that made it."""
    return round(REFERENCE_HETERO * speed, 6)


def slowness(speed: float, reference_speed: float, sensitivity: float | None) -> float:
    """How many times as long as at the reference speed a task takes.

    Args:
        speed: of the instance.
        reference_speed: that the task's standard time refers to.
        sensitivity: how far other speeds count; None: all the way.
    """
    reference, effective = hetero_of(reference_speed), hetero_of(speed)
    if sensitivity is not None:
        width = ZETA * sensitivity
        effective = min(max(effective, reference - width, 1.0), reference + width)
    return reference / effective
