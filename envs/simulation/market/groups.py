"""Bags of tasks and workflows in the place of some arrivals; all other jobs stay as they were drawn."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from spotweave.envs.simulation.market.config import (
    BagsConfig,
    MarketConfig,
    OfferConfig,
    WorkflowsConfig,
    WorkloadConfig,
)
from spotweave.envs.simulation.market.episodes import Jobs, Steps
from spotweave.envs.simulation.market.workload import execution_seconds, integers, log_uniform, uniform
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.streams import Streams

_CHILDREN = 11
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
    rng = streams.generator("job_sizes").spawn(_CHILDREN)[-1]
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
