"""Observations, random and played, and a network whose values are written down."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from spotweave.agents.networks import NetworkInput, ValueNetwork, to_input
from spotweave.agents.policy import Policy
from spotweave.agents.registry import AgentSettings, Shape, agent_named
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import (
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    Observation,
    empty_observation,
    take_rows,
)
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey

# Names of the columns, in the order of each array.
_NAMES = [name for name in vars(col) if name.isupper()]
CLUSTERS = _NAMES[:N_CLUSTER_FIELDS]
JOBS = _NAMES[N_CLUSTER_FIELDS:-N_PAIR_FIELDS]
PAIRS = _NAMES[-N_PAIR_FIELDS:]
assert len(JOBS) == N_JOB_FIELDS
for _names in (CLUSTERS, JOBS, PAIRS):
    assert [getattr(col, name) for name in _names] == list(range(len(_names)))


def random_batch(n: int, n_jobs: int, n_clusters: int, seed: int = 0) -> Observation:
    """n observations with random columns and masks; every job is there, every row has a valid choice."""
    rng = np.random.default_rng(seed)
    batch = empty_observation(n_jobs, n_clusters, (n,))
    batch["clusters"][:] = rng.exponential(10.0, batch["clusters"].shape)
    batch["occupation"][:] = rng.random(batch["occupation"].shape)
    batch["jobs"][:] = rng.exponential(10.0, batch["jobs"].shape)
    batch["pairs"][:] = rng.exponential(10.0, batch["pairs"].shape)
    batch["jobs"][..., col.PRESENT] = 1
    batch["jobs"][..., col.PEAK_SLOTS] = rng.integers(0, 5, (n, n_jobs))
    batch["action_mask"][:] = rng.random(batch["action_mask"].shape) < 0.5
    batch["action_mask"][np.arange(n), rng.integers(0, n_jobs * (n_clusters + 1), n)] = 1
    return batch


def copied(observations: Observation) -> Observation:
    """The same in arrays of its own."""
    return cast(Observation, {name: np.array(array) for name, array in observations.items()})


def joined(observations: Sequence[Observation]) -> Observation:
    """Batches one after the other."""
    names = observations[0].keys()
    rows = {name: np.concatenate([cast(Any, one)[name] for one in observations]) for name in names}
    return cast(Observation, rows)


def played(world: BatchWorld, rule: Policy, steps: int, random_share: float = 0.0) -> Observation:
    """What a rule is shown in one episode on every lane, where a share of the answers is drawn."""
    n, rng = len(world.observation["jobs"]), np.random.default_rng(2)
    world.reset([EpisodeKey(2, "train", index) for index in range(n)])
    active, actions, found = np.ones(n, np.bool_), np.zeros(n, np.int64), []
    for _ in range(steps):
        lanes = np.flatnonzero(active)
        found.append(copied(take_rows(world.observation, lanes)))
        actions[lanes] = rule.act_lanes(world.observation, lanes)
        for row, lane in enumerate(lanes):
            if rng.random() < random_share:
                actions[lane] = rng.choice(np.flatnonzero(found[-1]["action_mask"][row]))
        active &= ~world.step(actions, active)[1]
        if not active.any():
            break
    return joined(found)


def random_input(n: int, n_jobs: int, n_clusters: int, seed: int = 0) -> NetworkInput:
    return to_input(random_batch(n, n_jobs, n_clusters, seed), torch.device("cpu"))


def on_disk(state: dict[str, Any]) -> dict[str, Any]:
    """A state as it comes back from a checkpoint."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    loaded: dict[str, Any] = torch.load(buffer, weights_only=True)
    return loaded


class TableNetwork(ValueNetwork):
    """Ignores what it sees: its parameters are the values of every choice, the same for all decisions."""

    def __init__(self, table: Tensor, output_scales: tuple[float, ...]) -> None:
        """`table` is (J, C + 1, n_outputs)."""
        super().__init__(output_scales)
        self.table = torch.nn.Parameter(table.clone())

    def fit_scalers(self, batch: NetworkInput) -> None:
        """There is nothing to fit."""

    def forward(self, batch: NetworkInput) -> Tensor:
        """(B, J, C + 1, n_outputs): the table, for as many jobs as are shown."""
        n, n_jobs = batch.jobs.shape[:2]
        return self.table[:n_jobs].expand(n, -1, -1, -1)


# Small agents of every kind.


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
