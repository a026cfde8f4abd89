"""The compiled worlds of slices and of markets equal the plain ones, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.arrivals import ArrivalConfig
from spotweave.envs.simulation.market.config import MarketWorldConfig
from spotweave.envs.simulation.market.source import MarketData, draw_episode
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.slices.config import SliceWorldConfig, ValueConfig, WorkloadConfig, chapter4
from spotweave.envs.simulation.slices.workload import draw_workload
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import EpisodeKey
from tests.envs.market_cases import random_market, small_config
from tests.oracles.market import PER_USD, MarketOracle
from tests.oracles.slices import SliceOracle

QUICK = ("strict_fifo", "cut_by_time")
"""Variants that are always compared; the others are `real`."""
BASE_PAIRS = [col.REQUEST, col.PEAK_REQUEST, col.EXECUTION_S, col.DEADLINE_S]


def variants(names: Iterable[str]) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.real) for name in names]


def crowded(**changes: object) -> SliceWorldConfig:
    """A small world in which queues form and clusters extend themselves."""
    config = SliceWorldConfig(
        capacities=[400, 450, 500],
        hetero_factors=[70.0, 60.0, 100.0],
        elastic=[False, True, True],
        elastic_step=50,
        elastic_max=120,
        elastic_window=30,
        n_jobs=60,
        window=4,
        workload=WorkloadConfig(arrivals=ArrivalConfig(b=30)),
    )
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def assert_same_episode(config: SliceWorldConfig, key: EpisodeKey, none_share: float = 0.0) -> None:
    """Random decisions, everything compared with ==."""
    world = SliceWorld(config)
    world.reset([key])
    oracle = SliceOracle(config, draw_workload(config, key))
    rng = np.random.default_rng(key.index)
    n_clusters = len(config.capacities)
    decided = []
    while not oracle.finished:
        expected = oracle.observe()
        pairs, clusters = world.observation["pairs"][0], world.observation["clusters"][0]
        # Sums of halves and tenths, added in another order.
        for column, got, wanted in (
            (col.FREE_AHEAD, clusters, expected["clusters"]),
            (col.SHORTAGE, pairs, expected["pairs"]),
        ):
            np.testing.assert_allclose(got[..., column], wanted[..., column], rtol=1e-5, atol=1e-4)
            wanted[..., column] = got[..., column]
        for name in ("clusters", "occupation", "jobs"):
            seen = world.observation[name][0]
            np.testing.assert_array_equal(seen, expected[name], err_msg=f"{name} in slice {oracle.time}")
        np.testing.assert_array_equal(pairs[..., BASE_PAIRS], expected["pairs"][..., BASE_PAIRS])

        position = int(rng.integers(min(len(oracle.buffer), config.window)))
        cluster = n_clusters if rng.random() < none_share else int(rng.integers(n_clusters))
        chosen = None if cluster == n_clusters else cluster
        number = oracle.buffer[position]
        expected_reward = oracle.decide(position, chosen)
        rewards, dones = world.step(np.array([position * (n_clusters + 1) + cluster]))
        assert rewards[0] == expected_reward
        assert dones[0] == oracle.finished
        assert world.decided_jobs()[0] == number
        decided.append(number)
    jobs = np.array(decided)
    assert sorted(set(decided)) == list(range(config.n_jobs))
    values = world.values(0, jobs, world.marks())
    np.testing.assert_array_equal(values, np.array([oracle.values[n] for n in jobs.tolist()]))
    assert dict(world.metrics(0)) == oracle.metrics()


CHANGES: dict[str, Callable[[], SliceWorldConfig]] = {
    "strict_fifo": lambda: crowded(strict_fifo=True),
    "forecast": lambda: crowded(forecast=True),
    "chapter4_values": lambda: crowded(value=ValueConfig(kind="chapter4")),
    "no_streams": lambda: crowded(workload=WorkloadConfig(general=0.5, time_critical=0.5, streaming=0.0)),
    "streams_only": lambda: crowded(workload=WorkloadConfig(general=0.0, time_critical=0.0, streaming=1.0)),
    "bursts": lambda: crowded(
        workload=WorkloadConfig(arrivals=ArrivalConfig(pattern="poisson", rate=0.5, jobs_mean=12.0))
    ),
    "chapter4_world": chapter4,
    "chapter5_world": SliceWorldConfig,
    "chapter5_world_strict_fifo": lambda: SliceWorldConfig(strict_fifo=True),
}


@pytest.mark.parametrize("index", range(12))
def test_small_world_equals_the_oracle(index: int) -> None:
    assert_same_episode(crowded(), EpisodeKey(3, "train", index))


@pytest.mark.parametrize("name", variants(CHANGES))
def test_variants_equal_the_oracle(name: str) -> None:
    assert_same_episode(CHANGES[name](), EpisodeKey(4, "validation", 1))


@pytest.mark.parametrize("index", range(3))
def test_waiting_by_choice_equals_the_oracle(index: int) -> None:
    assert_same_episode(crowded(allow_none=True), EpisodeKey(5, "train", index), none_share=0.4)


def assert_same_market(
    config: MarketWorldConfig, data: MarketData, key: EpisodeKey, none_share: float = 0.2
) -> MarketOracle:
    """Random decisions, everything compared with ==."""
    world = MarketWorld(config, data)
    world.reset([key])
    oracle = MarketOracle(config, data, draw_episode(config, data, key))
    rng = np.random.default_rng(key.index)
    columns = len(data.offers) + 1
    decided, marks = [], []
    while not oracle.over:
        expected = oracle.observation()
        for name, array in expected.items():
            seen = world.observation[name][0]  # type: ignore[literal-required]
            np.testing.assert_array_equal(seen, array, err_msg=f"{name} at {oracle.now} s")
        valid = np.flatnonzero(world.observation["action_mask"][0])
        nones = valid[valid % columns == columns - 1]
        action = int(rng.choice(nones if rng.random() < none_share else valid))
        expected_reward = oracle.decide(action // columns, action % columns)
        rewards, dones = world.step(np.array([action]))
        assert rewards[0] == expected_reward
        assert dones[0] == oracle.over
        assert oracle.decided is not None
        assert world.decided_jobs()[0] == oracle.decided.number
        np.testing.assert_array_equal(world.marks()[0], oracle.mark)
        decided.append(oracle.decided)
        marks.append(oracle.mark)
    assert world.truncated(0) == oracle.truncated
    expected_values = [oracle.values(job, mark) for job, mark in zip(decided, marks, strict=True)]
    numbers = np.array([job.number for job in decided])
    np.testing.assert_array_equal(world.values(0, numbers, np.array(marks)), expected_values)
    check_metrics(dict(world.metrics(0)), oracle)
    return oracle


def check_metrics(metrics: dict[str, float], oracle: MarketOracle) -> None:
    totals = oracle.totals
    expected = {
        "cost_usd_eq": oracle.objective(),
        "misses": totals.miss_tc + totals.miss_batches,
        "miss_tc": totals.miss_tc,
        "miss_batches": totals.miss_batches,
        "delay_hours": totals.delay,
        "interruptions": totals.interruptions,
        "launch_failures": totals.launch_failures,
        "on_demand_usd": totals.on_demand / PER_USD,
        "spot_usd": totals.spot / PER_USD,
        "egress_usd": totals.egress / PER_USD,
        "disk_usd": totals.disk / PER_USD,
        "owned_executor_hours": totals.owned_s / 3600,
        "wasted_hours": totals.lost_s / 3600,
        "jobs_on_time": float(np.mean([job.misses == 0 for job in oracle.jobs])),
        "unfinished": sum(job.finished < job.executions for job in oracle.jobs),
        "decisions": oracle.decisions,
    }
    for name, value in expected.items():
        assert metrics[name] == value, name
    ratios = [1 + job.delay * 3600 / job.standard_s for job in oracle.jobs]
    assert metrics["response_p95"] == pytest.approx(np.percentile(ratios, 95))
    assert metrics["money_usd"] == pytest.approx(
        (totals.on_demand + totals.spot + totals.egress + totals.disk) / PER_USD
    )


@pytest.mark.parametrize("index", range(12))
def test_random_market_equals_the_oracle(index: int) -> None:
    assert_same_market(small_config(), random_market(index), EpisodeKey(5, "train", index))


MARKET_CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "strict_fifo": ({}, {"strict_fifo": True, "window": 2}, 0.1),
    "patient": ({}, {"reconsider_interval_s": 300, "decision_interval_s": 60}, 0.7),
    "never_moved": ({}, {"reconsider_interval_s": 0}, 0.1),
    "no_checkpoints": ({"checkpoint_interval_s": 0}, {"restart_s": 0, "dump_base_s": 0.0}, 0.2),
    "often_saved": ({"checkpoint_interval_s": 60}, {"dump_base_s": 40.0}, 0.2),
    "cut_by_decisions": ({}, {"max_decisions": 25}, 0.3),
    "cut_by_time": ({}, {"max_s": 5000}, 0.3),
    "in_groups": (
        {"arrivals": ArrivalConfig(pattern="uniform", jobs_mean=6.0), "jobs": 20},
        {"window": 4},
        0.2,
    ),
    "at_once": ({"arrivals": ArrivalConfig(pattern="trace", times=[0] * 14)}, {}, 0.5),
}


@pytest.mark.parametrize("name", variants(MARKET_CHANGES))
def test_changed_rules_equal_the_oracle(name: str) -> None:
    workload, market, none_share = MARKET_CHANGES[name]
    for index in range(3):
        key = EpisodeKey(6, "train", index)
        oracle = assert_same_market(
            small_config(workload, market), random_market(20 + index), key, none_share
        )
        assert oracle.truncated == name.startswith("cut")


@pytest.mark.parametrize("index", range(4))
def test_elastic_clusters_equal_the_oracle(index: int) -> None:
    data = random_market(40 + index)
    owned = [dataclasses.replace(offer, elastic=2 + c) for c, offer in enumerate(data.offers[:2])]
    changes = {"elastic_step": 1 + index % 2, "elastic_window_s": 1200}
    workload = {"jobs": 40, "batches": [2, 6]}
    config = small_config(workload, changes)
    elastic = dataclasses.replace(data, offers=(*owned, *data.offers[2:]))
    oracle = assert_same_market(config, elastic, EpisodeKey(7, "train", index))
    assert max(max(pool.samples) for pool in oracle.pools[:2]) > 3


@pytest.mark.real
def test_the_random_markets_hold_every_event() -> None:
    """The comparison above would prove little if, say, nothing ever hibernated."""
    seen = {"interruptions": 0, "failures": 0, "disk": 0, "lost": 0, "queued misses": 0.0, "moves": 0}
    for index in range(12):
        data = random_market(index)
        oracle = assert_same_market(small_config(), data, EpisodeKey(5, "train", index))
        seen["interruptions"] += oracle.totals.interruptions
        seen["failures"] += oracle.totals.launch_failures
        seen["disk"] += oracle.totals.disk
        seen["lost"] += oracle.totals.lost_s
        seen["queued misses"] += sum(job.mutual for job in oracle.jobs)
        seen["moves"] += sum(job.target >= 0 for job in oracle.jobs)
    assert min(seen.values()) > 0, seen
