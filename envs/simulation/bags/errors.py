"""The one error of bags of tasks."""

from __future__ import annotations

from envs.simulation.world import WorldError


class BagError(WorldError):
    """A mistake in a bag, an environment or a plan that its user can mend; the message is one line."""
