"""What holds in every episode of the market world, whatever is decided."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.simulation import columns as col
from envs.simulation.market import columns as at
from envs.simulation.market.source import draw_episode
from envs.simulation.market.world import MarketWorld
from envs.simulation.series import StepSeries
from envs.simulation.timeline import Timeline
from envs.simulation.world import EpisodeKey
from tests.envs.market_cases import random_market, small_config

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 10_000)


def play(world: MarketWorld, seed: int, none_share: float = 0.2) -> list[float]:
    """Random valid decisions to the end: the rewards."""
    rng = np.random.default_rng(seed)
    columns = world.spec.n_clusters + 1
    rewards, done = [], False
    while not done:
        clusters = world.observation["clusters"][0]
        assert (clusters[:, col.USED] <= clusters[:, col.CAPACITY_MAX]).all()
        assert (world.lanes.offer[0, :, at.USED] >= 0).all()
        assert (world.lanes.offer[0, :, at.HALTED] >= 0).all()
        valid = np.flatnonzero(world.observation["action_mask"][0])
        nones = valid[valid % columns == columns - 1]
        reward, dones = world.step(np.array([rng.choice(nones if rng.random() < none_share else valid)]))
        rewards.append(float(reward[0]))
        done = bool(dones[0])
    return rewards


def integral(series: StepSeries, start: float, end: float) -> float:
    """USD per executor of running from start to end, interval by interval."""
    edges = np.concatenate(
        [[start], series.times_s[(series.times_s > start) & (series.times_s < end)], [end]]
    )
    return float(sum((b - a) * series.at(a) for a, b in itertools.pairwise(edges))) / 3600


def expected_rent(world: MarketWorld, timeline: Timeline, prices: tuple[StepSeries, ...]) -> float:
    """What the uptimes in a timeline cost, by the rules of the clouds."""
    data, log = world.data, world.lanes.log[0, : world.lanes.lane[0, at.LOG_N]]
    rows = log[log[:, at.LOG_KIND] == at.INTERRUPTION]
    interrupted = {(int(row[at.LOG_JOB]), int(row[at.LOG_END_S])) for row in rows}
    total = 0.0
    for segment in timeline.segments:
        offer = data.offers[segment.cluster]
        uptime = segment.end - segment.start
        if offer.market == "owned":
            continue
        if (segment.job, int(segment.end)) in interrupted and uptime < offer.free_first_s:
            continue
        end = segment.start + max(uptime, 60)
        total += segment.executors * integral(prices[segment.cluster], segment.start, end)
    return total


@quick
@given(seeds, seeds, st.floats(0.0, 0.7))
def test_every_job_ends_once_and_the_books_balance(market: int, policy: int, none_share: float) -> None:
    data, config = random_market(market), small_config()
    key = EpisodeKey(market, "train", 0)
    world = MarketWorld(config, data, record=True)
    world.reset([key])
    rewards = play(world, policy, none_share)
    lanes, metrics = world.lanes, world.metrics(0)
    assert (lanes.job[0, :, at.PHASE] == at.DONE).all()
    assert lanes.lane[0, at.CLOSED] == config.workload.jobs
    assert (lanes.job[0, :, at.EXECUTED] == world.episodes.job[0, :, at.EXECUTIONS]).all()
    assert (lanes.offer[0, :, [at.USED, at.HALTED, at.PRESENT]] == 0).all()
    assert lanes.lane[0, at.QUEUE_N] == 0
    assert sum(rewards) == pytest.approx(-metrics["cost_usd_eq"])
    assert metrics["cost_usd_eq"] == pytest.approx(
        metrics["money_usd"]
        + 25 * metrics["miss_tc"]
        + 5 * metrics["miss_batches"]
        + 0.25 * metrics["delay_hours"]
    )
    timeline = world.timeline(0)
    prices = draw_episode(config, data, key).price_usd_hour
    rent = metrics["on_demand_usd"] + metrics["spot_usd"]
    assert rent == pytest.approx(expected_rent(world, timeline, prices), abs=1e-6)
    assert rent + metrics["egress_usd"] + metrics["disk_usd"] == pytest.approx(metrics["money_usd"])
    for c, offer in enumerate(data.offers):
        assert timeline.used[c].values.max() <= offer.quota
        assert timeline.used[c].values[-1] == 0
    assert len(timeline.interruptions) == metrics["interruptions"]


@quick
@given(seeds, seeds)
def test_no_work_is_lost_or_won_outside_the_books(market: int, policy: int) -> None:
    """A job cannot end with less uptime than its work takes on the fastest offer."""
    data, config = random_market(market), small_config({"streaming": 0.0, "general": 0.6})
    world = MarketWorld(config, data, record=True)
    world.reset([EpisodeKey(market, "train", 1)])
    play(world, policy)
    fastest = world.episodes.execution_s[0].min(axis=1)
    uptime = np.zeros(config.workload.jobs)
    for segment in world.timeline(0).segments:
        uptime[segment.job] += segment.end - segment.start
    assert (uptime >= fastest).all()


@quick
@given(seeds, seeds)
def test_the_same_seed_gives_the_same_episode(market: int, policy: int) -> None:
    data, config = random_market(market), small_config()
    results = []
    for _ in range(2):
        world = MarketWorld(config, data)
        world.reset([EpisodeKey(3, "train", 5)])
        results.append((play(world, policy), dict(world.metrics(0))))
    assert results[0] == results[1]


@quick
@given(seeds, seeds, seeds)
def test_what_is_drawn_does_not_depend_on_the_policy(market: int, one: int, other: int) -> None:
    """Two policies play; a third, fixed one, then meets exactly what it meets in a fresh world."""
    data, config = random_market(market), small_config()
    first, second = EpisodeKey(1, "train", 0), EpisodeKey(1, "train", 1)
    results = []
    for policy in (one, other):
        world = MarketWorld(config, data)
        world.reset([first])
        play(world, policy)
        world.reset([second])
        results.append(play(world, 77))
    assert results[0] == results[1]
    assert world.fingerprint(first) == MarketWorld(config, data).fingerprint(first)
    assert world.fingerprint(first) != world.fingerprint(second)


@quick
@given(seeds, seeds)
def test_values_of_first_decisions_sum_to_the_cost(market: int, policy: int) -> None:
    """Each job's first decision is taken as it arrives, so what followed all of them is the whole bill."""
    data, config = random_market(market), small_config()
    world = MarketWorld(config, data)
    world.reset([EpisodeKey(market, "train", 2)])
    rng = np.random.default_rng(policy)
    first: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    done = False
    while not done:
        _, dones = world.step(np.array([rng.choice(np.flatnonzero(world.observation["action_mask"][0]))]))
        job, done = int(world.decided_jobs()[0]), bool(dones[0])
        first.setdefault(job, world.marks()[0])
    values = world.values(0, np.array(list(first)), np.array(list(first.values())))
    before = np.array(list(first.values())).sum(axis=0)
    weights = np.array(world.spec.objective_weights)
    own = [0, 2, 3]  # mutual misses are the misses of others
    total = (before - values.sum(axis=0))[own] @ weights[own]
    assert total == pytest.approx(world.metrics(0)["cost_usd_eq"])
    assert (before[[0, 1, 3]] == 0).all()


def test_lanes_do_not_disturb_each_other() -> None:
    data, config = random_market(4), small_config()
    keys = [EpisodeKey(2, "train", index) for index in range(5)]
    alone = []
    for key in keys:
        world = MarketWorld(config, data)
        world.reset([key])
        alone.append((play(world, 9), dict(world.metrics(0))))
    together = MarketWorld(config, data, n_lanes=5)
    together.reset(keys)
    generators = [np.random.default_rng(9) for _ in keys]
    columns = together.spec.n_clusters + 1
    rewards: list[list[float]] = [[] for _ in keys]
    active = np.ones(5, np.bool_)
    while active.any():
        actions = np.zeros(5, np.int64)
        for lane in np.flatnonzero(active):
            valid = np.flatnonzero(together.observation["action_mask"][lane])
            nones = valid[valid % columns == columns - 1]
            rng = generators[lane]
            actions[lane] = rng.choice(nones if rng.random() < 0.2 else valid)
        step_rewards, done = together.step(actions, active)
        for lane in np.flatnonzero(active):
            rewards[lane].append(float(step_rewards[lane]))
        active = active & ~done
    for k, (expected_rewards, metrics) in enumerate(alone):
        assert rewards[k] == expected_rewards
        assert dict(together.metrics(k)) == metrics


def test_copied_lanes_have_the_same_future() -> None:
    data, config = random_market(5), small_config()
    world = MarketWorld(config, data, n_lanes=4)
    world.reset([EpisodeKey(2, "train", index) for index in range(4)])
    rng = np.random.default_rng(1)
    for _ in range(12):
        world.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in world.observation["action_mask"]]))
    world.copy_lanes(np.array([0, 0]), np.array([2, 3]))
    np.testing.assert_array_equal(world.observation["pairs"][0], world.observation["pairs"][3])
    world.limit_arrivals(np.array([3]), 0)
    active = np.ones(4, np.bool_)
    total = np.zeros(4)
    while active.any():
        masks = world.observation["action_mask"]
        actions = np.array([int(np.flatnonzero(m)[0]) if m.any() else 0 for m in masks])
        rewards, done = world.step(actions, active)
        total += rewards
        active &= ~done
    assert total[0] == total[2]
    assert world.metrics(0) == world.metrics(2)
    arrived = int(world.lanes.lane[3, at.ARRIVED])
    assert arrived < config.workload.jobs
    assert (world.lanes.job[3, :arrived, at.PHASE] == at.DONE).all()
    # The next episode of lane 0 must not overwrite the data that its copies play on.
    world.reset([EpisodeKey(2, "train", 9)], [0])
    assert world.lanes.episode_of_lane[0] != world.lanes.episode_of_lane[2]


def test_an_episode_sees_nothing_outside_its_split() -> None:
    """Changing prices and availability outside the split changes nothing."""
    data, config = random_market(7), small_config()
    start, end = data.splits["validation"]

    def blank(series: StepSeries) -> StepSeries:
        inside = (series.times_s > start) & (series.times_s < end)
        times = np.concatenate([[0, start], series.times_s[inside], [end, end + 60]])
        values = np.concatenate([[0.5, series.at(start)], series.values[inside], [0.25, 0.75]])
        return StepSeries(times.astype(np.int64), values)

    changed = dataclasses.replace(
        data,
        price_usd_hour=tuple(blank(series) for series in data.price_usd_hour),
        availability=tuple(blank(series) for series in data.availability if series is not None),
    )
    key = EpisodeKey(3, "validation", 0)
    worlds = [MarketWorld(config, each) for each in (data, changed)]
    for world in worlds:
        world.reset([key])
    assert play(worlds[0], 1) == play(worlds[1], 1)
