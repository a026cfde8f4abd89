"""Small agents of every kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.networks.base import ValueNetwork
from agents.policy import Policy
from agents.registry import Shape, agent_named
from agents.settings import AgentSettings
from agents.vector_policy import Layout, Scorer, VectorPolicy
from envs.simulation import columns as col
from envs.simulation.snapshot import Observation


def small_settings(kind: str, **values: Any) -> AgentSettings:
    """The agent's settings with those of `values` that it has."""
    defaults = agent_named(kind).defaults(kind)
    known = {field.name for field in dataclasses.fields(defaults)}
    return dataclasses.replace(defaults, **{name: value for name, value in values.items() if name in known})


def small_network(
    kind: str, n_clusters: int, scales: Sequence[float], weights: Sequence[float], **values: Any
) -> ValueNetwork:
    """A fresh network of a value-learning agent."""
    made = _made(kind, Shape(n_clusters, tuple(scales), tuple(weights)), values)
    assert isinstance(made, ValueNetwork)
    return made


class PairScorer(VectorPolicy):
    """A small network over three columns of the first job on each cluster: quick to evolve, for tests."""

    def __init__(self, hidden: int = 2, name: str = "evolved") -> None:
        super().__init__(Scorer(Layout(hidden, columns=3, outputs=1, direct=3)), name)

    def act_with(
        self,
        vectors: NDArray[np.float32],
        observations: Observation,
        rows: NDArray[np.int64],
        which: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """(n,) flat actions for the rows of the observations, row k decided by vectors[which[k]]."""
        pairs, hidden = observations["pairs"][rows, 0], self.network.layout.hidden
        seen = pairs[..., [col.EXECUTION_RATIO, col.FITS, col.IMPROPER]]
        inputs, bias, output, direct = np.split(vectors[which], np.cumsum([3, 1, 1]) * hidden, axis=1)
        units = np.maximum(0.0, seen @ inputs.reshape(-1, 3, hidden) + bias[:, None])
        scores = (units @ output[:, :, None] + seen @ direct[:, :, None])[..., 0]
        scores -= 5.0 * seen[..., 0]  # the rule that it corrects: the fastest cluster
        valid = observations["action_mask"][rows, : pairs.shape[1]] > 0
        best: NDArray[np.int64] = np.where(valid, scores, -np.inf).argmax(1)
        return best


def small_scorer(kind: str, hidden_size: int, name: str) -> VectorPolicy:
    """A scorer with weights of zero: it acts as its rule."""
    made = _made(kind, Shape(1, (1.0,), (1.0,)), {"hidden_size": hidden_size, "name": name})
    assert isinstance(made, VectorPolicy)
    return made


def _made(kind: str, shape: Shape, values: dict[str, Any]) -> ValueNetwork | Policy:
    make = agent_named(kind).make
    assert make is not None
    return make(small_settings(kind, **values), shape)
