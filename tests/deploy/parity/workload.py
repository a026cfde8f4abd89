"""Federated applications, bags and workflows of the market as live jobs: what of them both sides know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spotweave.deploy.model.jobs import Bag, BagTask, Flower, FlowerClient, TaskKey
from spotweave.deploy.model.workflows import Workflow
from spotweave.envs.market_data import MarketWorldConfig, build_market, market_data
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import EpisodeData, Episodes, Jobs
from spotweave.envs.simulation.market.source import draw_episode
from spotweave.envs.simulation.market.state import NEVER
from spotweave.envs.simulation.market.workload import execution_seconds
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.snapshot import FULLY_SENSITIVE, REFERENCE_HETERO, Category
from spotweave.envs.simulation.world import EpisodeKey

NEVER_SAVED_S = 1_000_000
"""Of a checkpoint within an epoch, which takes longer than any notice: live there is none."""


class WorldOfLiveJobs(MarketWorld):
    """A market whose applications, bags and workflows have what live ones have."""

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        for lane, key in enumerate(keys):
            drawn = draw_episode(self.config, self.data, key)
            self.load(self._as_live(drawn), lane)

    def _as_live(self, drawn: EpisodeData) -> EpisodeData:
        factors = np.array([offer.hetero_factor for offer in self.data.offers], np.int64)
        jobs = trainings_as_live(drawn.jobs, factors, self.config.workload.zeta)
        return replace(drawn, jobs=groups_as_live(jobs))


def world_of(config: MarketWorldConfig) -> MarketWorld:
    if not (config.workload.federated or config.workload.has_groups):
        return build_market(config)
    return WorldOfLiveJobs(config, market_data(config.market))


def groups_as_live(jobs: Jobs) -> Jobs:
    """The same jobs; of bags and workflows only what live ones have too.

    All tasks of a bag have the input and checkpoint of the last, which its profile tells. A step of a
    workflow saves nothing before it has ended.
    """
    if jobs.steps is None:
        return jobs
    last, rows = jobs.steps.last, np.arange(len(jobs.steps.last))
    waits = jobs.steps.needed_end > jobs.steps.needed_from
    step = np.isin(last, last[waits])
    of = np.where(step, rows, last)
    return replace(
        jobs,
        data_gb=jobs.data_gb[of],
        checkpoint_gb=np.where(step, 0.0, jobs.checkpoint_gb[of]),
        interval_s=np.where(step, 0, jobs.interval_s),
        dump_s=np.where(step, NEVER_SAVED_S, jobs.dump_s[of]),
        home=jobs.home[last],
    )


def trainings_as_live(jobs: Jobs, factors: np.ndarray[tuple[int], np.dtype[np.int64]], zeta: float) -> Jobs:
    """The same jobs; of applications only what live trainings have too.

    A client's data are where it trains, nothing is saved within an epoch, and its time goes with the speed. A
    server runs with the scheduler: it takes nobody's place and costs nothing.
    """
    if jobs.tasks is None:
        return jobs
    federated = jobs.category == int(Category.FEDERATED)
    server = federated & (jobs.tasks.server == np.arange(len(federated)))
    hetero = np.where(federated, int(REFERENCE_HETERO), jobs.expected_hetero)
    sensitivity = np.where(federated, int(FULLY_SENSITIVE), jobs.sensitivity)
    execution = execution_seconds(jobs.standard_s, hetero, sensitivity, factors, zeta)
    return replace(
        jobs,
        executors=np.where(server, 0, jobs.executors),
        expected_hetero=hetero,
        sensitivity=sensitivity,
        data_gb=np.where(federated, 0.0, jobs.data_gb),
        checkpoint_gb=np.where(federated, 0.0, jobs.checkpoint_gb),
        interval_s=np.where(federated, 0, jobs.interval_s),
        dump_s=np.where(federated, NEVER_SAVED_S, jobs.dump_s),
        execution_s=np.where(federated[:, None], execution, jobs.execution_s),
    )


def is_server(episodes: Episodes, slot: int, job: int) -> bool:
    row = episodes.job[slot, job]
    return bool(row[at.CLIENTS] > 0 and row[at.SERVER] == job)


def server_place(world: MarketWorld) -> int:
    """Where servers run: on the owned cluster."""
    return next(k for k, offer in enumerate(world.data.offers) if offer.market == "owned")


def serve_at_once(world: MarketWorld, server: int) -> None:
    """A server that was given its place is up: live it is there before its job comes."""
    lane = world.lanes
    assert lane.job[0, server, at.PHASE] == at.SETTING_UP
    lane.job[0, server, at.PHASE] = at.IDLE
    lane.when[0, server, at.EVENT_S] = NEVER


def training_of(episodes: Episodes, slot: int, server: int, place: int) -> Flower:
    rows = episodes.job[slot]
    allowance_s = float(rows[server, at.ALLOWANCE_S])
    clients = tuple(
        FlowerClient(
            name=f"{job:06d}",
            epoch_s=float(rows[job, at.STANDARD_S]),
            cold_s=float(rows[job, at.COLD_S]),
        )
        for job in range(server + 1, server + 1 + int(rows[server, at.CLIENTS]))
    )
    return Flower.model_validate(
        {
            "app": "simulated",
            "rounds": int(rows[server, at.EXECUTIONS]),
            "clients": clients,
            "deadline_s": allowance_s or None,
            "aggregation_s": float(episodes.execution_s[slot, server, place]),
        },
        strict=False,
    )


def row_of(key: TaskKey) -> int:
    """The core's job behind a task."""
    name = key.job_id if key.task == "main" else key.task
    return int(name.rpartition("-")[2])


def members(episodes: Episodes, slot: int, job: int) -> range:
    """The rows of the bag or workflow that begins with a job; that of the job alone where there is none."""
    return range(job, int(episodes.job[slot, job, at.LAST_ROW]) + 1)


def is_first(episodes: Episodes, slot: int, job: int) -> bool:
    """Whether a row is no further task of a bag or workflow that began before it."""
    return job == 0 or bool(episodes.job[slot, job - 1, at.LAST_ROW] < job)


def bag_of(episodes: Episodes, slot: int, first: int) -> Bag:
    rows = episodes.job[slot]
    tasks = tuple(
        BagTask(
            name=f"task-{job:06d}", command=("simulated",), minutes=float(rows[job, at.STANDARD_S]) / 60.0
        )
        for job in members(episodes, slot, first)
    )
    allowance_s = float(rows[first, at.ALLOWANCE_S])
    return Bag(tasks=tasks, deadline_s=allowance_s or None, checkpoint=("simulated",))


def is_workflow(episodes: Episodes, slot: int, first: int) -> bool:
    """Whether a row begins a workflow of several stages. One of a single stage is a bag to the market too."""
    rows = episodes.job[slot, list(members(episodes, slot, first))]
    return bool((rows[:, at.NEEDED_END] > rows[:, at.NEEDED_FROM]).any())


def workflow_of(episodes: Episodes, slot: int, first: int, region: str) -> Workflow:
    """What a user would say of a workflow whose inputs lie in a region."""
    rows, sizes = episodes.job[slot], episodes.job_real[slot]
    jobs = members(episodes, slot, first)
    needed = slice(at.NEEDED_FROM, at.NEEDED_END + 1)
    steps = [
        {
            "name": f"step-{job:06d}",
            "script": "simulated",
            "reads": [f"input-{job}", *(f"output-{k}" for k in range(*rows[job, needed]))],
            "writes": [{"name": f"output-{job}"}],
            "minutes": float(rows[job, at.STANDARD_S]) / 60.0,
            "executors": int(rows[job, at.EXECUTORS]),
        }
        for job in jobs
    ]
    files = [
        {"name": f"input-{job}", "path": "data", "region": region, "gb": float(sizes[job, at.DATA_GB])}
        for job in jobs
    ]
    deadline_s = float(rows[jobs[-1], at.ALLOWANCE_S])
    return Workflow.model_validate({"steps": steps, "files": files, "deadline_s": deadline_s}, strict=False)
