"""Federated applications of the market as live trainings: what of them both sides know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spotweave.deploy.model.jobs import Flower, FlowerClient, TaskKey
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


class TrainingWorld(MarketWorld):
    """A market whose applications have what live trainings have."""

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """As the world's own."""
        for lane, key in enumerate(keys):
            drawn = draw_episode(self.config, self.data, key)
            self.load(self._as_live(drawn), lane)

    def _as_live(self, drawn: EpisodeData) -> EpisodeData:
        factors = np.array([offer.hetero_factor for offer in self.data.offers], np.int64)
        return replace(drawn, jobs=as_live(drawn.jobs, factors, self.config.workload.zeta))


def world_of(config: MarketWorldConfig) -> MarketWorld:
    """The world of a configuration."""
    if not config.workload.federated:
        return build_market(config)
    return TrainingWorld(config, market_data(config.market))


def as_live(jobs: Jobs, factors: np.ndarray[tuple[int], np.dtype[np.int64]], zeta: float) -> Jobs:
    """The same jobs; of applications only what live trainings have too.

    A client's data are where it trains, nothing is saved within an epoch, and its time goes with the speed. A
    server runs with the scheduler: it takes nobody's place and costs nothing.
    """
    assert jobs.tasks is not None
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
    """Whether a job is the server of an application."""
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
    """What a user would say of an application."""
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
    name = key.task if key.task.startswith("client-") else key.job_id
    return int(name.rpartition("-")[2])
