"""How `mtdqn` sees jobs on clusters (Liu 2022): all of them, valued in missed deadlines."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.mtdqn.decide import (
    GREEDY,
    GUIDED,
    Acting,
    Choices,
    Exploring,
    Label,
    Sizes,
    evaluate,
    mean_at,
    occupation_at,
    pick,
    room_for,
)
from spotweave.agents.mtdqn.view import View
from spotweave.agents.rules.choice import NO_ACTION, largest_job, row_of, smallest_job
from spotweave.agents.rules.committed import CommittedParameters, committed_cost
from spotweave.agents.rules.tuned import TunedParameters, tuned_cost
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner, linked
from spotweave.envs.simulation.snapshot import HISTORY_STEPS, Category, ObservationArrays

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


# What `mtdqn` sees of a job and of a job on a cluster: shares and ratios that mean the same anywhere.
#
# Nothing here depends on the number of clusters, on their order or on how many executors they have, so one
# network serves any infrastructure. Compared with the state of Liu 2022, Table 5.1, it adds halted
# requests, the capacity in effect, what extension is left, the batch period, and what follows from them for
# each pair.


# Of the job, and of all clusters as it meets them (the same for each of its clusters).
STREAMING = 0
TIME_CRITICAL = 1
GENERAL = 2
LOG_STANDARD = 3  # log of the standard time in minutes
LOG_EXECUTIONS = 4
PERIOD_SLACK = 5  # streaming: period / standard time - 1
SENSITIVITY = 6
EXPECTED_SPEED = 7  # expected hetero factor against the mean of the clusters
MEAN_REQUEST = 8  # against the mean capacity
BUFFERED = 9  # jobs that await a decision
PEAK_SLOTS = 10
MEAN_LOAD = 11  # mean over the clusters
MEAN_FREE = 12
MOST_FREE = 13
SHARE_ROOMY = 14  # clusters on which the peak fits now and the deadline can be met
SHARE_PROPER = 15  # clusters on which the deadline can be met without waiting
N_JOB_COLUMNS = 16

# Of one cluster (the first ten, and SIZE), and of the job there.
LOAD = 0  # mean occupation over the latest 100 steps
LOAD_NOW = 1
LOAD_10 = 2
LOAD_30 = 3
HALTED = 4  # executors requested by what waits inside / capacity
FREE = 5  # (capacity - used - halted) / capacity
EXTENSIBLE = 6  # extension left / capacity
EXTENSION = 7  # extension in effect / capacity
SPEED = 8  # hetero factor against the mean of the clusters
UNREST = 9  # standard deviation of the occupation
RATIO = 10  # execution time / standard time - 1
REGRET = 11  # ... above the best cluster on which the deadline can be met
IMPROPER = 12  # the deadline is missed there even without waiting (IH)
IMPROPER_EXECUTIONS = 13
FITS = 14
ROOM = 15  # (free - request) / capacity
PEAK_FITS = 16
PEAK_ROOM = 17  # (free - peak request) / capacity
PEAK_ROOM_REQUESTS = 18  # ... / peak request
REQUEST = 19  # request / capacity
SLACK = 20  # (deadline - execution time) / standard time; 1 without deadline
LOAD_ABOVE_MEAN = 21
FREE_ABOVE_MEAN = 22
STREAMING_LOAD = 23
STREAMING_PEAK_ROOM = 24
STREAMING_RATIO = 25
GENERAL_REGRET = 26
SIZE = 27  # log of capacity / mean capacity
N_PLACE_COLUMNS = 28
# Where the guide is the rule `committed`: what the jobs deployed there will need.
FREE_AHEAD = 28  # executors that stay free / capacity
SHORTAGE = 29  # executors short / mean request, at most 1
N_COMMITTED_COLUMNS = 30


@inner
def _bounded(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))


@inner
def count_jobs(obs: ObservationArrays) -> int:
    """Jobs of the window that are present; they come first."""
    count = 0
    for job in range(obs.jobs.shape[0]):
        if obs.jobs[job, col.PRESENT] > 0.0:
            count += 1
    return count


@inner
def describe_clusters(obs: ObservationArrays, places: NDArray[np.float32]) -> None:
    """Fill the first ten columns of `places` (C, columns), and SIZE: they depend on no job."""
    n_clusters = obs.clusters.shape[0]
    mean_capacity = 0.0
    mean_speed = 0.0
    for c in range(n_clusters):
        mean_capacity += max(1.0, obs.clusters[c, col.CAPACITY_NOW]) / n_clusters
        mean_speed += obs.clusters[c, col.HETERO_FACTOR] / n_clusters
    for c in range(n_clusters):
        row = obs.clusters[c]
        place = places[c]
        capacity = max(1.0, row[col.CAPACITY_NOW])
        place[LOAD] = row[col.MEAN_OCCUPATION]
        place[LOAD_NOW] = obs.occupation[c, HISTORY_STEPS - 1]
        total = 0.0
        for k in range(HISTORY_STEPS - 10, HISTORY_STEPS):
            total += obs.occupation[c, k]
        place[LOAD_10] = total / 10.0
        for k in range(HISTORY_STEPS - 30, HISTORY_STEPS - 10):
            total += obs.occupation[c, k]
        place[LOAD_30] = total / 30.0
        place[HALTED] = min(2.0, row[col.HALTED] / capacity)
        place[FREE] = max(-2.0, (capacity - row[col.USED] - row[col.HALTED]) / capacity)
        place[EXTENSIBLE] = 5.0 * (row[col.CAPACITY_MAX] - capacity) / capacity
        place[EXTENSION] = 5.0 * (capacity - row[col.CAPACITY_NORMAL]) / capacity
        place[SPEED] = 5.0 * (row[col.HETERO_FACTOR] / mean_speed - 1.0) if mean_speed > 0.0 else 0.0
        square = 0.0
        for k in range(HISTORY_STEPS - 100, HISTORY_STEPS):
            square += (obs.occupation[c, k] - row[col.MEAN_OCCUPATION]) ** 2
        place[UNREST] = 3.0 * np.sqrt(square / 100.0)
        place[SIZE] = np.log(capacity / mean_capacity)


@inner
def describe_job(
    obs: ObservationArrays, job: int, n_jobs: int, places: NDArray[np.float32], seen: NDArray[np.float32]
) -> None:
    """Fill `seen` (N_JOB_COLUMNS,) and the other columns of `places`, given `describe_clusters`.

    Args:
        obs: one observation.
        job: row of the window.
        n_jobs: jobs present.
        places: (C, N_PLACE_COLUMNS or N_COMMITTED_COLUMNS), changed in place.
        seen: overwritten.
    """
    n_clusters = obs.clusters.shape[0]
    row = obs.jobs[job]
    streaming = 1.0 if row[col.CATEGORY] == Category.STREAMING.value else 0.0
    general = 1.0 if row[col.CATEGORY] == Category.GENERAL.value else 0.0
    standard = max(1.0, row[col.STANDARD_S])
    best_ratio = np.inf
    most_free = -np.inf
    request = mean_capacity = mean_speed = mean_load = mean_free = roomy = proper = 0.0
    for c in range(n_clusters):
        pair = obs.pairs[job, c]
        request += pair[col.REQUEST] / n_clusters
        mean_capacity += max(1.0, obs.clusters[c, col.CAPACITY_NOW]) / n_clusters
        mean_speed += obs.clusters[c, col.HETERO_FACTOR] / n_clusters
        mean_load += places[c, LOAD] / n_clusters
        mean_free += places[c, FREE] / n_clusters
        most_free = max(most_free, places[c, FREE])
        if pair[col.IMPROPER] == 0.0:
            proper += 1.0 / n_clusters
            best_ratio = min(best_ratio, pair[col.EXECUTION_RATIO])
            if pair[col.FREE] >= pair[col.PEAK_REQUEST]:
                roomy += 1.0 / n_clusters
    if proper == 0.0:
        best_ratio = 1.0
    seen[STREAMING] = streaming
    seen[TIME_CRITICAL] = 1.0 if row[col.CATEGORY] == Category.TIME_CRITICAL.value else 0.0
    seen[GENERAL] = general
    seen[LOG_STANDARD] = np.log(standard / 60.0)
    seen[LOG_EXECUTIONS] = np.log(max(1.0, row[col.EXECUTIONS])) / 3.0
    seen[PERIOD_SLACK] = streaming * (row[col.PERIOD_S] / standard - 1.0)
    seen[SENSITIVITY] = row[col.SENSITIVITY] / 5.0
    seen[EXPECTED_SPEED] = 5.0 * (row[col.EXPECTED_HETERO] / mean_speed - 1.0) if mean_speed > 0.0 else 0.0
    seen[MEAN_REQUEST] = 10.0 * request / mean_capacity
    seen[BUFFERED] = min(2.0, n_jobs / 5.0)
    seen[PEAK_SLOTS] = row[col.PEAK_SLOTS] / 4.0
    seen[MEAN_LOAD] = mean_load
    seen[MEAN_FREE] = mean_free
    seen[MOST_FREE] = most_free
    seen[SHARE_ROOMY] = roomy
    seen[SHARE_PROPER] = proper
    for c in range(n_clusters):
        pair = obs.pairs[job, c]
        place = places[c]
        capacity = max(1.0, obs.clusters[c, col.CAPACITY_NOW])
        regret = pair[col.EXECUTION_RATIO] - best_ratio
        room = pair[col.FREE] - pair[col.REQUEST]
        peak_room = pair[col.FREE] - pair[col.PEAK_REQUEST]
        place[RATIO] = pair[col.EXECUTION_RATIO] - 1.0
        place[REGRET] = regret
        place[IMPROPER] = pair[col.IMPROPER]
        place[IMPROPER_EXECUTIONS] = pair[col.IMPROPER] * row[col.EXECUTIONS] / 20.0
        place[FITS] = 1.0 if room >= 0.0 else 0.0
        place[ROOM] = _bounded(room / capacity, -2.0, 1.0)
        place[PEAK_FITS] = 1.0 if peak_room >= 0.0 else 0.0
        place[PEAK_ROOM] = _bounded(peak_room / capacity, -2.0, 1.0)
        place[PEAK_ROOM_REQUESTS] = _bounded(peak_room / (1.5 * max(1.0, pair[col.PEAK_REQUEST])), -2.0, 2.0)
        place[REQUEST] = 5.0 * pair[col.REQUEST] / capacity
        place[SLACK] = (
            _bounded(3.0 * (pair[col.DEADLINE_S] - pair[col.EXECUTION_S]) / standard, -3.0, 3.0)
            if pair[col.DEADLINE_S] > 0.0
            else 1.0
        )
        place[LOAD_ABOVE_MEAN] = place[LOAD] - mean_load
        place[FREE_ABOVE_MEAN] = place[FREE] - mean_free
        place[STREAMING_LOAD] = streaming * place[LOAD]
        place[STREAMING_PEAK_ROOM] = streaming * place[PEAK_ROOM]
        place[STREAMING_RATIO] = streaming * pair[col.EXECUTION_RATIO]
        place[GENERAL_REGRET] = general * regret
        if places.shape[1] == N_COMMITTED_COLUMNS:
            place[FREE_AHEAD] = obs.clusters[c, col.FREE_AHEAD] / capacity
            place[SHORTAGE] = min(1.0, pair[col.SHORTAGE] / max(1.0, request))
