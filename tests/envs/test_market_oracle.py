"""The compiled market world equals the readable oracle in every observation, reward, metric and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.simulation.arrivals import ArrivalConfig
from envs.simulation.market.config import MarketWorldConfig
from envs.simulation.market.source import MarketData, draw_episode
from envs.simulation.market.world import MarketWorld
from envs.simulation.world import EpisodeKey
from tests.envs.market_cases import random_market, small_config
from tests.oracles.market import PER_USD, MarketOracle


def assert_same_episode(
    config: MarketWorldConfig, data: MarketData, key: EpisodeKey, none_share: float = 0.2
) -> MarketOracle:
    """Random decisions, everything compared with ==."""
    world = MarketWorld(config, data)
    world.reset([key])
    oracle = MarketOracle(config, data, draw_episode(config, data, key))
    rng = np.random.default_rng(key.index)
    columns = len(data.offers) + 1
    decided, marks, expected_values = [], [], []
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
    ratios = [1 + job.delay * 3600 / job.standard for job in oracle.jobs]
    assert metrics["response_p95"] == pytest.approx(np.percentile(ratios, 95))
    assert metrics["money_usd"] == pytest.approx(
        (totals.on_demand + totals.spot + totals.egress + totals.disk) / PER_USD
    )


@pytest.mark.parametrize("index", range(12))
def test_random_market_equals_the_oracle(index: int) -> None:
    assert_same_episode(small_config(), random_market(index), EpisodeKey(5, "train", index))


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
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


@pytest.mark.real
@pytest.mark.parametrize("name", CHANGES)
def test_changed_rules_equal_the_oracle(name: str) -> None:
    workload, market, none_share = CHANGES[name]
    for index in range(3):
        key = EpisodeKey(6, "train", index)
        oracle = assert_same_episode(
            small_config(workload, market), random_market(20 + index), key, none_share
        )
        assert oracle.truncated == name.startswith("cut")


@pytest.mark.real
def test_the_random_markets_hold_every_event() -> None:
    """The comparison above would prove little if, say, nothing ever hibernated."""
    seen = {"interruptions": 0, "failures": 0, "disk": 0, "lost": 0, "queued misses": 0.0, "moves": 0}
    for index in range(12):
        data = random_market(index)
        oracle = assert_same_episode(small_config(), data, EpisodeKey(5, "train", index))
        seen["interruptions"] += oracle.totals.interruptions
        seen["failures"] += oracle.totals.launch_failures
        seen["disk"] += oracle.totals.disk
        seen["lost"] += oracle.totals.lost_s
        seen["queued misses"] += sum(job.mutual for job in oracle.jobs)
        seen["moves"] += sum(job.target >= 0 for job in oracle.jobs)
    assert min(seen.values()) > 0, seen
