"""Whether budgets that a snapshot does not show, of a job or a whole deployment, pay for a start."""

from __future__ import annotations

from numba import njit

from envs.simulation.guards.rules import Facts, GuardRules
from envs.simulation.snapshot import FloatArray, MaskArray


@njit(cache=True, error_model="numpy")
def budgets(
    clusters: FloatArray,
    job: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    place: int,
    facts: Facts,
    rules: GuardRules,
) -> int:
    """The place that a choice becomes: itself, or "none" (C) where budgets do not pay a start."""
    n_clusters = int(clusters.shape[0])
    if place < n_clusters and facts.start_usd[place] > facts.left_usd:
        return n_clusters
    return place
