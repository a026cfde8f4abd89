"""The one error of recorded data."""

from __future__ import annotations

from envs.simulation.world import WorldError


class TraceError(WorldError):
    """A mistake in recorded data that its user can mend; the message is one line."""
