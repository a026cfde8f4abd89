"""Small agents of every kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from agents.networks.base import ValueNetwork
from agents.registry import Shape, agent_named
from agents.settings import AgentSettings


def small_settings(kind: str, **values: Any) -> AgentSettings:
    """The agent's settings with those of `values` that it has."""
    defaults = agent_named(kind).defaults(kind)
    known = {field.name for field in dataclasses.fields(defaults)}
    return dataclasses.replace(defaults, **{name: value for name, value in values.items() if name in known})


def small_network(
    kind: str, n_clusters: int, scales: Sequence[float], weights: Sequence[float], **values: Any
) -> ValueNetwork:
    """A fresh network of a value-learning agent."""
    make = agent_named(kind).make
    assert make is not None
    made = make(small_settings(kind, **values), Shape(n_clusters, tuple(scales), tuple(weights)))
    assert isinstance(made, ValueNetwork)
    return made
