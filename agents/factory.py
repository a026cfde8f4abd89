"""Builds networks and policies from plain settings; what a checkpoint stores is enough to call this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.evolved import EvolvedPolicy
from agents.federated.scorer import RoundScorer, RoundScorerPolicy
from agents.networks.base import ValueNetwork
from agents.networks.pairwise import PairwiseNetwork
from agents.networks.rl_fc import RLFC
from agents.networks.rl_lsfc import RLLSFC
from agents.scorer.policy import Scorer, ScorerPolicy

EVOLVED = frozenset({"scorer", "round_scorer"})
"""Agent kinds that learn by evolution: for clusters that queue, and for federated tasks."""
CLUSTER_COUNT_INDEPENDENT = frozenset({"spotweave"}) | EVOLVED
"""Agent kinds whose checkpoints serve any number of clusters."""


def make_network(
    settings: Mapping[str, Any], n_clusters: int, scales: Sequence[float], weights: Sequence[float]
) -> ValueNetwork:
    """A freshly initialised network for agent settings (see training.settings.AgentSettings).

    Args:
        settings: at least `kind` and the sizes that belong to it.
        n_clusters: C.
        scales: (K,) magnitudes of the value components.
        weights: (K,) scalarisation weights; they set the scale of a network with one output.

    Raises:
        ValueError: for an unknown kind.
    """
    kind = settings["kind"]
    if kind == "rl_lsfc":
        return RLLSFC(
            n_clusters,
            tuple(scales),
            settings["features"],
            settings["lstm_size"],
            settings["shared_size"],
            settings["head_size"],
        )
    if kind == "rl_fc":
        first, second = settings["hidden_sizes"]
        combined = max(abs(w) * s for w, s in zip(weights, scales, strict=True))
        return RLFC(n_clusters, (combined,), settings["features"], (first, second))
    if kind == "spotweave":
        appraised = settings["appraiser"] != "none"
        return PairwiseNetwork(
            tuple(scales),
            settings["embedding_size"],
            settings["pair_size"],
            appraised,
            settings.get("rounds", False),
            settings.get("relative", False),
        )
    raise ValueError(f"unknown agent kind {kind!r}: expected rl_lsfc, rl_fc or spotweave")


def make_evolved(kind: str, hidden: int, name: str) -> EvolvedPolicy:
    """A policy of one of the kinds in `EVOLVED`, its weights all zero: it acts as its rule.

    Raises:
        ValueError: for another kind.
    """
    if kind == "scorer":
        return ScorerPolicy(Scorer(hidden), name)
    if kind == "round_scorer":
        return RoundScorerPolicy(RoundScorer(hidden), name)
    raise ValueError(f"unknown agent kind {kind!r}: expected {' or '.join(sorted(EVOLVED))}")
