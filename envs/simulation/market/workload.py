"""Draws the jobs of an episode: one-shot jobs with and without a deadline, and streaming jobs.

Sizes and durations follow laws that were fitted to recorded clusters and are handed in (`JobLaw`). Each
property has a generator of its own, so changing one law leaves the others' draws alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spotweave.envs.simulation.arrivals import draw_arrivals
from spotweave.envs.simulation.availability import LognormalMixture
from spotweave.envs.simulation.market.config import (
    ARRIVAL_UNIT_S,
    BagsConfig,
    MarketConfig,
    OfferConfig,
    WorkflowsConfig,
    WorkloadConfig,
)
from spotweave.envs.simulation.market.episodes import Jobs, Steps, Tasks
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.streams import Split, Streams, exp
from spotweave.envs.simulation.world import WorldError

HOUR_S = 3600


@dataclass(frozen=True)
class JobLaw:
    """What recordings say about jobs."""

    gang_sizes: tuple[int, ...]  # executors that a job needs at once
    gang_weights: tuple[float, ...]  # how often each size occurs
    durations: LognormalMixture  # of one-shot jobs, seconds, before the bounds of `WorkloadConfig.standard_s`
    hourly_weights: tuple[float, ...]  # (24,) share of a day's load in each hour


@dataclass(frozen=True)
class JobLog:
    """Recorded jobs, by arrival."""

    arrival_s: Ints  # (n,) seconds, not decreasing
    duration_s: Ints  # (n,) seconds of work
    executors: Ints  # (n,) needed at once
    splits: Mapping[Split, tuple[int, int]]  # rows [first, end) of each split

    def require(self, jobs: int) -> None:
        """Raise WorldError if a split has fewer jobs than an episode plays."""
        for split, (first, end) in self.splits.items():
            if end - first < jobs:
                raise WorldError(
                    f"workload.trace has {end - first} jobs in its {split} part, workload.jobs asks for "
                    f"{jobs}: lower env.workload.jobs, or give a longer log"
                )

    def drawn(self, config: WorkloadConfig, split: Split, streams: Streams) -> JobLog:
        """Draw the jobs of an episode: as many in a row as configured, beginning anywhere in the split."""
        first, end = self.splits[split]
        start = first + int(streams.generator("arrivals").integers(end - first - config.jobs + 1))
        rows = slice(start, start + config.jobs)
        pace = config.arrival_unit_s / ARRIVAL_UNIT_S
        after_s = np.rint((self.arrival_s[rows] - self.arrival_s[start]) * pace).astype(np.int64)
        return JobLog(after_s, self.duration_s[rows], self.executors[rows], self.splits)


def draw_arrival_units(config: WorkloadConfig, streams: Streams) -> Ints:
    """(n,) arrival times in seconds before the hours of the day bend them, not decreasing."""
    times = draw_arrivals(config.arrivals, config.jobs, streams.generator("arrivals"))
    if config.arrivals.pattern == "trace":
        return times
    return times * config.arrival_unit_s


def bend_by_hour(times_s: Ints, weights: tuple[float, ...], origin_s: int) -> Ints:
    """Move arrival times so that the load follows the hours of the day, at the same mean rate.

    The times count from `origin_s`. A time t of even load becomes the moment at which the load since the
    start, with hour h weighted by 24 * weights[h], has reached t (time-rescaling of a Poisson process).

    Args:
        times_s: (n,) seconds, not decreasing.
        weights: (24,) shares of a day's load, summing to 1.
        origin_s: where the episode starts on a clock whose hour 0 begins at 0.
    """
    share = np.asarray(weights, np.float64) / np.sum(weights)
    rates = 24.0 * share
    first = origin_s % (24 * HOUR_S)
    hours = int(times_s[-1] // HOUR_S) + 50
    edges_s = np.concatenate([[0.0], (np.arange(1, hours + 1) * HOUR_S - first % HOUR_S).astype(np.float64)])
    rate = rates[(first // HOUR_S + np.arange(hours)) % 24]
    load = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * rate)])
    row = np.clip(np.searchsorted(load, times_s, side="left") - 1, 0, hours - 1)
    inside = np.where(rate[row] > 0, (times_s - load[row]) / np.maximum(rate[row], 1e-12), 0.0)
    return np.asarray(np.ceil(edges_s[row] + inside), np.int64)


def execution_seconds(
    standard_s: Ints, expected_hetero: Ints, sensitivity: Ints, hetero: Ints, zeta: float
) -> Ints:
    """(n, C) time of one execution on each offer: ceil(std * h / clip(hf_c, h -+ zeta * sen)).

    Source: Liu 2022, section 5.3.
    """
    width = zeta * sensitivity.astype(np.float64)
    low = np.maximum(expected_hetero - width, 1.0)[:, None]
    high = (expected_hetero + width)[:, None]
    effective = np.clip(hetero[None, :].astype(np.float64), low, high)
    return np.ceil((standard_s * expected_hetero)[:, None] / effective).astype(np.int64)


def draw_jobs(
    config: WorkloadConfig,
    market: MarketConfig,
    offers: tuple[OfferConfig, ...],
    n_regions: int,
    law: JobLaw,
    arrival_s: Ints,
    streams: Streams,
    log: JobLog | None = None,
) -> Jobs:
    """The jobs of an episode, given when they arrive; with a log, its one-shot jobs and no streams.

    Raises:
        WorldError: for an empty workload, or gangs that fit on no offer.
    """
    n = len(arrival_s)
    if n == 0:
        raise WorldError("the workload is empty: expected at least one arrival")
    names = ("category", "gang", "work", "hetero", "sensitivity", "slack", "stream", "data", "home")
    draw = dict(zip(names, streams.generator("job_sizes").spawn(len(names)), strict=True))
    categories = np.array([Category.GENERAL, Category.TIME_CRITICAL, Category.STREAMING], np.int64)
    shares = [config.general, config.time_critical, 0.0 if log is not None else config.streaming]
    category = draw["category"].choice(categories, size=n, p=np.asarray(shares) / sum(shares))
    streaming = category == Category.STREAMING
    critical = category == Category.TIME_CRITICAL

    period = integers(draw["stream"], config.period_s, n)
    batches = integers(draw["stream"], config.batches, n)
    batch_s = np.rint(period * uniform(draw["stream"], config.batch_work, n)).astype(np.int64)
    batch_allowance = np.rint(period * uniform(draw["stream"], config.batch_allowance, n)).astype(np.int64)

    one_shot_s = _durations(config, law, draw["work"], n) if log is None else log.duration_s
    standard = np.where(streaming, np.maximum(batch_s, 1), one_shot_s)
    slack = uniform(draw["slack"], config.slack, n)
    allowance = np.ceil(one_shot_s * slack + config.slack_s).astype(np.int64)
    hetero = integers(draw["hetero"], config.expected_hetero, n)
    sensitivity = integers(draw["sensitivity"], config.sensitivity, n)
    factors = np.array([offer.hetero_factor for offer in offers], np.int64)

    data_gb = np.clip(
        draw["data"].lognormal(math.log(config.data_gb_median), config.data_gb_sigma, n),
        config.data_gb[0],
        config.data_gb[1],
    )
    checkpoint_gb = log_uniform(draw["data"], config.checkpoint_gb, n)
    dump = np.ceil(market.dump_base_s + checkpoint_gb / market.dump_gb_s).astype(np.int64)
    return Jobs(
        arrival_s=arrival_s,
        category=category,
        executors=_gangs(config, law, offers, draw["gang"], n) if log is None else log.executors,
        standard_s=standard,
        expected_hetero=hetero,
        sensitivity=sensitivity,
        executions=np.where(streaming, batches, 1),
        period_s=np.where(streaming, period, 0),
        allowance_s=np.where(streaming, batch_allowance, np.where(critical, allowance, 0)),
        data_gb=data_gb,
        checkpoint_gb=checkpoint_gb,
        interval_s=np.where(streaming, 0, config.checkpoint_interval_s),
        dump_s=dump,
        home=draw["home"].integers(0, n_regions, size=n),
        execution_s=execution_seconds(standard, hetero, sensitivity, factors, config.zeta),
    )


def integers(rng: np.random.Generator, bounds: list[int], n: int) -> Ints:
    """(n,) numbers within the inclusive bounds."""
    return rng.integers(bounds[0], bounds[1], size=n, endpoint=True)


def uniform(rng: np.random.Generator, bounds: list[float], n: int) -> Floats:
    """(n,) numbers within the bounds."""
    return rng.uniform(bounds[0], bounds[1], n)


def _gangs(
    config: WorkloadConfig, law: JobLaw, offers: tuple[OfferConfig, ...], rng: np.random.Generator, n: int
) -> Ints:
    sizes = np.array(config.gangs or law.gang_sizes, np.int64)
    weights = np.array(config.gang_weights or law.gang_weights, np.float64)
    largest = max(offer.quota for offer in offers)
    if config.gangs and max(config.gangs) > largest:
        raise WorldError(
            f"workload.gangs has {max(config.gangs)} executors, the largest quota of an offer is {largest}: "
            "lower the gang or raise a quota"
        )
    fits = sizes <= largest
    if not fits.any():
        raise WorldError(f"no gang of {sizes.tolist()} fits a quota of {largest}: raise a quota")
    return rng.choice(sizes[fits], size=n, p=weights[fits] / weights[fits].sum())


def _durations(config: WorkloadConfig, law: JobLaw, rng: np.random.Generator, n: int) -> Ints:
    """Durations within the bounds, by rejection; what still falls outside after 50 rounds is clipped."""
    low, high = config.standard_s
    kept: Floats = np.empty(0)
    for _ in range(50):
        drawn = law.durations.sample(rng, n)
        kept = np.concatenate([kept, drawn[(drawn >= low) & (drawn <= high)]])
        if len(kept) >= n:
            break
    if len(kept) < n:
        kept = np.concatenate([kept, np.clip(law.durations.sample(rng, n), low, high)])
    return np.ceil(kept[:n]).astype(np.int64)


# Federated applications in the place of some arrivals. All other jobs stay as they were drawn, so that a
# workload with and without applications can be compared.

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
    n_clients = integers(rng, config.clients, k)
    rounds = integers(rng, config.rounds, k)
    epoch = log_uniform(rng, config.epoch_s, k)
    model_gb = log_uniform(rng, config.checkpoint_gb, k)
    aggregation = integers(rng, config.aggregation_s, k)
    slack = uniform(rng, config.slack, k)
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

    share = uniform(rng, config.client_share, m)
    standard = np.where(is_server, aggregation[of], np.maximum(1, np.rint(epoch[of] * share))).astype(
        np.int64
    )
    cold = np.ceil(standard * uniform(rng, config.cold_share, m)).astype(np.int64)
    usd_hour = uniform(rng, config.budget_usd_hour, m)
    has_budget = (rng.random(m) < config.budget) & ~is_server
    hetero = integers(rng, workload.expected_hetero, m)
    sensitivity = integers(rng, workload.sensitivity, m)
    data_gb = np.where(is_server, 0.0, log_uniform(rng, config.data_gb, m))
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


def log_uniform(rng: np.random.Generator, bounds: list[float] | list[int], n: int) -> Floats:
    """(n,) numbers within the bounds whose logarithms are uniform."""
    return exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]), n))


# Bags of tasks and workflows in the place of some arrivals; all other jobs stay as they were drawn.


_GROUP_CHILDREN = 11
"""Generators of the stream "job_sizes": nine for jobs, one for applications, the last for these."""


@dataclass(frozen=True)
class Group:
    """The m tasks of a bag, or steps of a workflow; row numbers count from its first.

    Attributes:
        executors, standard_s: (m,).
        allowance_s: (m,) from its arrival; 0 without a deadline.
        data_gb: (m,).
        needed: (m, 2) the rows [from, end) that a step waits for.
    """

    executors: Ints
    standard_s: Ints
    allowance_s: Ints
    data_gb: Floats
    needed: Ints


def draw_bag(config: BagsConfig, rng: np.random.Generator) -> Group:
    """A bag of one-executor tasks."""
    m = int(integers(rng, config.tasks, 1)[0])
    standard_s = np.rint(log_uniform(rng, config.task_s, m)).astype(np.int64)
    slack = float(uniform(rng, config.slack, 1)[0])
    deadline = rng.random() < config.deadline
    allowance_s = math.ceil(standard_s.max() * slack + config.slack_s) if deadline else 0
    return Group(
        executors=np.ones(m, np.int64),
        standard_s=standard_s,
        allowance_s=np.full(m, allowance_s, np.int64),
        data_gb=log_uniform(rng, config.data_gb, m),
        needed=np.zeros((m, 2), np.int64),
    )


def draw_workflow(config: WorkflowsConfig, most_executors: int, rng: np.random.Generator) -> Group:
    """A workflow, stage by stage. No step needs more than `most_executors`."""
    widths = integers(rng, config.width, int(integers(rng, config.stages, 1)[0]))
    m = int(widths.sum())
    standard_s = np.rint(log_uniform(rng, config.step_s, m)).astype(np.int64)
    executors = np.minimum(integers(rng, config.executors, m), most_executors)
    slack = float(uniform(rng, config.slack, 1)[0])
    ends = np.cumsum(widths)
    begins = ends - widths
    path_s = np.maximum.reduceat(standard_s, begins) + config.start_s
    after_s = path_s.sum() - np.cumsum(path_s)
    stage = np.repeat(np.arange(len(widths)), widths)
    before = np.maximum(stage - 1, 0)
    needed = np.stack([begins[before], ends[before]], 1)
    needed[stage == 0] = 0
    return Group(
        executors=executors,
        standard_s=standard_s,
        allowance_s=math.ceil(path_s.sum() * slack) - after_s[stage],
        data_gb=log_uniform(rng, config.data_gb, m),
        needed=needed,
    )


def draw_groups(
    workload: WorkloadConfig,
    market: MarketConfig,
    offers: tuple[OfferConfig, ...],
    n_regions: int,
    jobs: Jobs,
    streams: Streams,
) -> Jobs:
    """The jobs with some of them replaced by the rows of bags and workflows."""
    rng = streams.generator("job_sizes").spawn(_GROUP_CHILDREN)[-1]
    n_bags, n_workflows = (part.number(workload.jobs) for part in (workload.bags, workload.workflows))
    chosen = rng.permutation(np.flatnonzero(jobs.category != Category.FEDERATED))[: n_bags + n_workflows]
    most = max(offer.quota for offer in offers)
    groups = {
        int(row): draw_bag(workload.bags, rng) if k < n_bags else draw_workflow(workload.workflows, most, rng)
        for k, row in enumerate(chosen)
    }
    return _replaced(jobs, dict(sorted(groups.items())), workload, market, offers, n_regions, rng)


def _replaced(
    jobs: Jobs,
    groups: dict[int, Group],
    workload: WorkloadConfig,
    market: MarketConfig,
    offers: tuple[OfferConfig, ...],
    n_regions: int,
    rng: np.random.Generator,
) -> Jobs:
    sizes = np.ones(len(jobs.arrival_s), np.int64)
    m = np.array([len(group.executors) for group in groups.values()])
    sizes[list(groups)] = m
    origin = np.repeat(np.arange(len(sizes)), sizes)  # the arrival that a row comes from
    first = np.cumsum(sizes) - sizes  # the first row of an arrival
    grouped = np.isin(origin, list(groups))

    def each(bounds: list[int]) -> Ints:
        """A number of its own for every group, in each of its rows."""
        return np.repeat(integers(rng, bounds, len(m)), m)

    standard_s, allowance_s, executors, data_gb = (
        np.concatenate([getattr(group, name) for group in groups.values()])
        for name in ("standard_s", "allowance_s", "executors", "data_gb")
    )
    hetero, sensitivity = each(workload.expected_hetero), each(workload.sensitivity)
    checkpoint_gb = log_uniform(rng, workload.checkpoint_gb, len(standard_s))
    factors = np.array([offer.hetero_factor for offer in offers], np.int64)
    new = {
        "category": np.where(allowance_s > 0, Category.TIME_CRITICAL, Category.GENERAL),
        "executors": executors,
        "standard_s": standard_s,
        "expected_hetero": hetero,
        "sensitivity": sensitivity,
        "executions": 1,
        "period_s": 0,
        "allowance_s": allowance_s,
        "data_gb": data_gb,
        "checkpoint_gb": checkpoint_gb,
        "interval_s": workload.checkpoint_interval_s,
        "dump_s": np.ceil(market.dump_base_s + checkpoint_gb / market.dump_gb_s).astype(np.int64),
        "home": each([0, n_regions - 1]),
        "execution_s": execution_seconds(standard_s, hetero, sensitivity, factors, workload.zeta),
    }
    changed = {}
    for name, values in new.items():
        changed[name] = getattr(jobs, name)[origin]
        changed[name][grouped] = values
    needed = np.zeros((len(origin), 2), np.int64)
    needed[grouped] = np.concatenate([group.needed + first[row] for row, group in groups.items()])
    last = np.arange(len(origin))
    last[grouped] = (first + sizes - 1)[origin[grouped]]
    tasks = jobs.tasks
    if tasks is not None:
        whole = {field.name: getattr(tasks, field.name)[origin] for field in dataclasses.fields(tasks)}
        whole["server"] = first[whole["server"]]
        whole["server"][grouped] = np.flatnonzero(grouped)
        tasks = dataclasses.replace(tasks, **whole)
    return dataclasses.replace(
        jobs,
        arrival_s=jobs.arrival_s[origin],
        **changed,
        tasks=tasks,
        steps=Steps(needed[:, 0], needed[:, 1], last),
    )
