"""How `mtdqn` sees jobs on clusters (Liu 2022): all of them, valued in missed deadlines."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.mtdqn.decide import GREEDY, GUIDED, Acting, Choices, Exploring, Label, pick, room_for
from spotweave.agents.mtdqn.forward import Sizes, evaluate, mean_at, occupation_at
from spotweave.agents.mtdqn.slice_columns import (
    N_COMMITTED_COLUMNS,
    N_JOB_COLUMNS,
    N_PLACE_COLUMNS,
    count_jobs,
    describe_clusters,
    describe_job,
)
from spotweave.agents.mtdqn.view import View
from spotweave.agents.rules.choice import NO_ACTION, largest_job, row_of, smallest_job
from spotweave.agents.rules.committed import CommittedParameters, committed_cost
from spotweave.agents.rules.tuned import TunedParameters, tuned_cost
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner, linked
from spotweave.envs.simulation.snapshot import ObservationArrays

OWN_MISSES, DELAY, MUTUAL = 0, 1, 2
"""Values of a choice: its own job's misses and delay, and what it does to all other jobs."""
NEAR = 2.0  # what is drawn at random is at most this worse than the best, in missed deadlines
NEED_UNIT = 20_000.0  # executor-slices that count as a need of 1
MOST_MISSES = 8.0  # bound on a job's misses as a target: few jobs with many of them would drown the rest


@inner
def next_job(obs: ObservationArrays, sizes: Sizes) -> int:
    """The job that the guide would decide next; -1 if none is open."""
    return largest_job(obs) if sizes.places == N_COMMITTED_COLUMNS else smallest_job(obs)


@linked()
def weigh(obs: ObservationArrays, job: int, acting: Acting, choices: Choices) -> None:
    """Fill what is given of a job on each of the C places, and its values, which include what is known.

    Without weights (a vector of length 0) the values are what is known.
    """
    n_clusters = obs.clusters.shape[0]
    p = acting.sizes.places
    places = np.empty((n_clusters, p), np.float32)
    seen = np.empty(N_JOB_COLUMNS, np.float32)
    describe_clusters(obs, places)
    describe_job(obs, job, count_jobs(obs), places, seen)
    known, occupation = mean_at(acting.sizes), occupation_at(acting.sizes)
    mean = np.zeros(p, np.float32)
    for c in range(n_clusters):
        mean += places[c] / np.float32(n_clusters)
    executions = obs.jobs[job, col.EXECUTIONS]
    for c in range(n_clusters):
        pair = obs.pairs[job, c]
        choices.columns[c, :p] = places[c]
        choices.columns[c, p:known] = seen
        if acting.sizes.mutual > 0:
            choices.columns[c, known:occupation] = mean
        if acting.sizes.lstm > 0:
            choices.columns[c, occupation:] = obs.occupation[c]
        choices.known[c, 0] = -pair[col.IMPROPER] * executions
        choices.known[c, 1] = 1.0 - pair[col.EXECUTION_RATIO]
        choices.needs[c] = pair[col.REQUEST] * pair[col.EXECUTION_S] * executions / np.float32(NEED_UNIT)
        choices.targets[c] = c
        choices.open[c] = obs.mask[job * (n_clusters + 1) + c] != 0
        choices.proper[c] = pair[col.IMPROPER] == 0.0
    if len(acting.vector) > 0:
        evaluate(acting.vector, acting.sizes, choices.columns, choices.needs, choices.values)
    else:
        choices.values[:] = 0.0
    choices.values[:, :MUTUAL] += choices.known


@linked()
def _guided(obs: ObservationArrays, job: int, acting: Acting) -> int:
    """Cluster that the guide chooses for the job; -1 if no place is valid."""
    n_clusters = obs.clusters.shape[0]
    committed = acting.sizes.places == N_COMMITTED_COLUMNS
    best, least = -1, np.inf
    for c in range(n_clusters):
        if obs.mask[job * (n_clusters + 1) + c] == 0:
            continue
        cost = committed_cost(obs, job, c, acting.rule) if committed else tuned_cost(obs, job, c, acting.rule)
        if best < 0 or cost < least:
            best, least = c, cost
    return best


@njit(cache=True, error_model="numpy", nogil=True)
def decide_rows(
    batch: ObservationArrays,
    rows: NDArray[np.int64],
    acting: Acting,
    exploring: Exploring,
    label: Label,
    shown: NDArray[np.float32],
    actions: NDArray[np.int64],
) -> None:
    """See `agents.mtdqn.view.DecideRows`."""
    n_clusters = batch.clusters.shape[1]
    keeps, shows = label.tried.shape[0] > 0, shown.shape[0] > 0
    choices = room_for(n_clusters, acting.sizes)
    for k in range(rows.shape[0]):
        obs = row_of(batch, rows[k])
        job = next_job(obs, acting.sizes)
        if job < 0:
            actions[k] = NO_ACTION
            continue
        how = GREEDY if exploring.spent[k, job] else exploring.how[k]
        guided = _guided(obs, job, acting) if acting.follow or how == GUIDED else -1
        if how == GREEDY and acting.follow and not (keeps or shows):
            taken = guided
        else:
            weigh(obs, job, acting, choices)
            draw, take = exploring.draws[k], exploring.take[k]
            row = k if keeps else -1
            taken = pick(choices, n_clusters, guided, 0.0, NEAR, acting, how, draw, take, label, row)
            if shows:
                shown[k, :n_clusters] = choices.values
        actions[k] = job * (n_clusters + 1) + (taken if taken >= 0 else n_clusters)


class SliceView(View):
    """Jobs on clusters whose guide is the rule `tuned` or `committed`.

    Args:
        committed: the guide is `committed`, which needs the forecast of the world of chapter 4.
        lstm: see `Sizes`.
        own: likewise.
        networks: likewise.
        mutual: likewise.
    """

    block_jobs = 50
    aftermath = 60.0

    def __init__(self, committed: bool, lstm: int, own: int, networks: int, mutual: int) -> None:
        places = N_COMMITTED_COLUMNS if committed else N_PLACE_COLUMNS
        self.sizes = Sizes(places, N_JOB_COLUMNS, MUTUAL, lstm, own, networks, mutual, scaled=0)
        self.rule = (CommittedParameters() if committed else TunedParameters()).vector()
        self.decide_rows = decide_rows

    def of_heads(self, weights: tuple[float, ...]) -> NDArray[np.float32]:
        """What values are multiplied by so that they are in missed deadlines."""
        misses, mutual, delay = weights
        return np.array([misses, delay, mutual], np.float32) / np.float32(self.reward_unit(weights))

    def reward_unit(self, weights: tuple[float, ...]) -> float:
        """The mutual value is learned in missed deadlines."""
        return weights[0] if weights[0] > 0.0 else 1.0

    def targets(
        self, label: Label, side: NDArray[np.int64], outcomes: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Minus misses and delay beyond what was known."""
        beyond = -outcomes - label.known[np.arange(len(side)), side]
        beyond[:, OWN_MISSES] = beyond[:, OWN_MISSES].clip(-MOST_MISSES, MOST_MISSES)
        return np.asarray(beyond, np.float32)

    def losses(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Squared errors, each in missed deadlines."""
        misses, delay = ((outputs - targets) * weights[:MUTUAL]).square().mean((0, 1))
        return {"own_misses": misses, "delay": delay}

    def own_worth(self, outputs: Tensor, known: Tensor, facts: Tensor, weights: Tensor) -> Tensor:
        """(...) weighed own values, in missed deadlines; as `View.own_worth`."""
        return torch.sum((outputs + known) * weights[:MUTUAL], -1)
