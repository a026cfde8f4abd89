"""The one error of workflows."""

from __future__ import annotations

from envs.simulation.world import WorldError


class WorkflowError(WorldError):
    """A mistake in a workflow, its clusters or a plan that its user can mend; the message is one line."""
