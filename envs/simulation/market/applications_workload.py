"""Draws federated applications in the place of some arrivals of an episode.

All other jobs stay as they were drawn, so a workload with and without applications can be compared.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from envs.simulation.market.config import MarketConfig, OfferConfig, WorkloadConfig
from envs.simulation.market.episodes import Jobs, Tasks
from envs.simulation.market.workload import HOUR_S, execution_seconds
from envs.simulation.series import Floats, Ints
from envs.simulation.snapshot import Category
from envs.simulation.streams import Streams, exp

_CHILDREN = 10
"""Generators of the stream "job_sizes": nine for jobs (see `workload.draw_jobs`), the last for these."""


def draw_applications(
    workload: WorkloadConfig,
    market: MarketConfig,
    offers: tuple[OfferConfig, ...],
    n_regions: int,
    jobs: Jobs,
    streams: Streams,
) -> Jobs:
    """The jobs with some of them replaced by applications: one row for the server, then one per client."""
    config = workload.applications
    n = len(jobs.arrival_s)
    rng = streams.generator("job_sizes").spawn(_CHILDREN)[-1]
    chosen = np.sort(rng.permutation(n)[: config.number(n)])
    k = len(chosen)
    n_clients = _integers(rng, config.clients, k)
    rounds = _integers(rng, config.rounds, k)
    epoch = _log_uniform(rng, config.epoch_s, k)
    model_gb = _log_uniform(rng, config.checkpoint_gb, k)
    aggregation = _integers(rng, config.aggregation_s, k)
    slack = _uniform(rng, config.slack, k)
    has_deadline = rng.random(k) < config.deadline

    sizes = np.ones(n, np.int64)
    sizes[chosen] += n_clients
    origin = np.repeat(np.arange(n), sizes)  # the arrival that a row comes from
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    servers = first[chosen]
    application = np.full(len(origin), -1, np.int64)
    for a, arrival in enumerate(chosen.tolist()):
        application[first[arrival] : first[arrival] + sizes[arrival]] = a
    federated = application >= 0
    of = application[federated]
    m = len(of)
    is_server = np.isin(np.flatnonzero(federated), servers)

    share = _uniform(rng, config.client_share, m)
    standard = np.where(is_server, aggregation[of], np.maximum(1, np.rint(epoch[of] * share))).astype(
        np.int64
    )
    cold = np.ceil(standard * _uniform(rng, config.cold_share, m)).astype(np.int64)
    usd_hour = _uniform(rng, config.budget_usd_hour, m)
    has_budget = (rng.random(m) < config.budget) & ~is_server
    hetero = _integers(rng, workload.expected_hetero, m)
    sensitivity = _integers(rng, workload.sensitivity, m)
    data_gb = np.where(is_server, 0.0, _log_uniform(rng, config.data_gb, m))
    home = rng.integers(0, n_regions, size=m)

    slowest = np.zeros(k, np.int64)
    coldest = np.zeros(k, np.int64)
    np.maximum.at(slowest, of[~is_server], standard[~is_server])
    np.maximum.at(coldest, of[~is_server], cold[~is_server])
    whole = rounds * (slowest + aggregation) + coldest
    allowance = np.where(has_deadline, np.ceil(whole * slack + config.slack_s), 0).astype(np.int64)

    def rows(values: Ints, replaced: Ints | int) -> Ints:
        """A column of all rows: that of the arrivals, replaced in rows of applications."""
        column = values[origin]
        column[federated] = replaced
        return column

    def real_rows(values: Floats, replaced: Floats) -> Floats:
        column = values[origin]
        column[federated] = replaced
        return column

    def only(values: Ints) -> Ints:
        """A column that is 0 but in rows of applications."""
        return rows(np.zeros(n, np.int64), values)

    checkpoint = model_gb[of]
    dump = np.ceil(market.dump_base_s + checkpoint / market.dump_gb_s).astype(np.int64)
    factors = np.array([offer.hetero_factor for offer in offers], np.int64)
    execution = jobs.execution_s[origin].copy()
    execution[federated] = execution_seconds(standard, hetero, sensitivity, factors, workload.zeta)
    server = np.arange(len(origin))
    server[federated] = servers[of]
    work_hours = standard * rounds[of] / HOUR_S
    tasks = Tasks(
        server=server,
        clients=only(n_clients[of]),
        cold_s=only(np.where(is_server, 0, cold)),
        budget_usd=real_rows(np.zeros(n), np.where(has_budget, usd_hour * work_hours, 0.0)),
        whole_s=only(np.where(is_server, whole[of], 0)),
    )
    return dataclasses.replace(
        jobs,
        arrival_s=jobs.arrival_s[origin],
        category=rows(jobs.category, int(Category.FEDERATED)),
        executors=rows(jobs.executors, 1),
        standard_s=rows(jobs.standard_s, standard),
        expected_hetero=rows(jobs.expected_hetero, hetero),
        sensitivity=rows(jobs.sensitivity, sensitivity),
        executions=rows(jobs.executions, rounds[of]),
        period_s=rows(jobs.period_s, 0),
        allowance_s=rows(jobs.allowance_s, np.where(is_server, allowance[of], 0)),
        data_gb=real_rows(jobs.data_gb, data_gb),
        checkpoint_gb=real_rows(jobs.checkpoint_gb, checkpoint),
        interval_s=rows(jobs.interval_s, np.where(is_server, 0, config.checkpoint_interval_s)),
        dump_s=rows(jobs.dump_s, dump),
        home=rows(jobs.home, home),
        execution_s=execution,
        tasks=tasks,
    )


def _integers(rng: np.random.Generator, bounds: list[int], n: int) -> Ints:
    return rng.integers(bounds[0], bounds[1], size=n, endpoint=True)


def _uniform(rng: np.random.Generator, bounds: list[float], n: int) -> Floats:
    return rng.uniform(bounds[0], bounds[1], n)


def _log_uniform(rng: np.random.Generator, bounds: list[float] | list[int], n: int) -> Floats:
    return exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]), n))
