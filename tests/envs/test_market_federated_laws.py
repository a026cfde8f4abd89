"""What holds in every episode with federated applications, whatever is decided."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.rules import RULES, make_rule
from envs.environments import register
from envs.simulation import columns as col
from envs.simulation.market import columns as at
from envs.simulation.market.config import ApplicationsConfig, MarketWorldConfig, WorkloadConfig
from envs.simulation.market.source import draw_episode
from envs.simulation.market.world import MarketWorld
from envs.simulation.snapshot import Category
from envs.simulation.world import EpisodeKey, WorldError
from tests.envs.market_cases import random_market, small_config
from tests.envs.test_market_laws import expected_rent

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 10_000)


def federated_config(
    applications: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
    market: dict[str, Any] | None = None,
) -> MarketWorldConfig:
    """A dense day of which a fifth are applications, half of whose clients have budgets, often short ones."""
    facts: dict[str, Any] = {
        "share": 0.2,
        "clients": [1, 4],
        "rounds": [1, 6],
        "epoch_s": [60, 900],
        "budget": 0.5,
        "budget_usd_hour": [0.3, 4.0],
        "checkpoint_interval_s": 120,
        "epoch_spread": 0.3,
    }
    config = ApplicationsConfig(**{**facts, **(applications or {})})
    return small_config({"federated": True, "applications": config, **(workload or {})}, market)


def play(world: MarketWorld, seed: int, none_share: float) -> list[float]:
    """Random valid decisions to the end, with what must hold at each of them: the rewards."""
    rng = np.random.default_rng(seed)
    columns = world.spec.n_clusters + 1
    rewards, done = [], False
    rows = world.episodes.job[0]
    servers = np.flatnonzero((rows[:, at.CLIENTS] > 0) & (rows[:, at.SERVER] == np.arange(len(rows))))
    aggregated = world.lanes.job[0, servers, at.EXECUTED].copy()
    while not done:
        assert (world.lanes.offer[0, :, at.USED] >= 0).all()
        assert (world.lanes.offer[0, :, at.USED] <= world.offers.fixed[:, at.QUOTA]).all()
        check_masks(world)
        valid = np.flatnonzero(world.observation["action_mask"][0])
        nones = valid[valid % columns == columns - 1]
        reward, dones = world.step(np.array([rng.choice(nones if rng.random() < none_share else valid)]))
        rewards.append(float(reward[0]))
        done = bool(dones[0])
        latest = world.lanes.job[0, servers, at.EXECUTED]
        assert (latest >= aggregated).all()  # a round that is aggregated is never lost
        aggregated = latest.copy()
    return rewards


def check_masks(world: MarketWorld) -> None:
    """Of the tasks shown: what is idle may stay, and no other offer is valid that a budget does not pay."""
    n_offers = world.spec.n_clusters
    jobs, pairs = world.observation["jobs"][0], world.observation["pairs"][0]
    masks = world.observation["action_mask"][0].reshape(-1, n_offers + 1)
    for row, pair, mask in zip(jobs, pairs, masks, strict=True):
        if row[col.CATEGORY] != Category.FEDERATED:
            continue
        here = pair[:, col.HERE] > 0
        assert mask[n_offers] == 1
        if row[col.IDLE] > 0:
            assert here.sum() == 1
            assert mask[:n_offers][here].all()
        if row[col.HAS_BUDGET] > 0:
            elsewhere = (mask[:n_offers] == 1) & ~here
            assert (pair[elsewhere, col.COST_USD] <= row[col.BUDGET_LEFT_USD] + 1e-6).all()


@pytest.mark.real
@quick
@given(seeds, seeds, st.floats(0.0, 0.7))
def test_no_round_is_lost_and_the_books_balance(market: int, policy: int, none_share: float) -> None:
    data, config = random_market(market), federated_config()
    key = EpisodeKey(market, "train", 0)
    world = MarketWorld(config, data, record=True)
    world.reset([key])
    rewards = play(world, policy, none_share)
    lanes, episode, metrics = world.lanes, world.episodes.job[0], world.metrics(0)
    n = int(lanes.lane[0, at.LIMIT])
    jobs = lanes.job[0, :n]
    assert not world.truncated(0)
    assert (jobs[:, at.PHASE] == at.DONE).all()
    complete = jobs[:, at.EXECUTED] == episode[:n, at.EXECUTIONS]
    assert (complete | (jobs[:, at.LEFT] == 1)).all()
    assert (lanes.offer[0, :, [at.USED, at.HALTED, at.PRESENT]] == 0).all()
    assert lanes.lane[0, at.QUEUE_N] == 0
    assert sum(rewards) == pytest.approx(-metrics["cost_usd_eq"])
    assert metrics["cost_usd_eq"] == pytest.approx(
        metrics["money_usd"]
        + 25 * metrics["miss_tc"]
        + 5 * metrics["miss_batches"]
        + 0.25 * metrics["delay_hours"]
    )
    rent = metrics["on_demand_usd"] + metrics["spot_usd"]
    prices = draw_episode(config, data, key).price_usd_hour
    assert rent == pytest.approx(expected_rent(world, world.timeline(0), prices), abs=1e-6)
    assert 0 <= metrics["idle_usd"] <= rent + 1e-9
    budgeted = episode[:n, at.BUDGET] > 0
    assert (jobs[budgeted, at.CHARGE] <= episode[:n][budgeted, at.BUDGET]).all()
    assert metrics["clients_left"] == (jobs[:, at.LEFT] * (episode[:n, at.SERVER] != np.arange(n))).sum()
    assert (jobs[~budgeted, at.LEFT] * (episode[:n][~budgeted, at.CLIENTS] == 0) == 0).all()


def test_the_random_markets_hold_every_event() -> None:
    """The laws above would prove little if, say, no budget ever ended."""
    totals: dict[str, float] = {}
    for index in range(12):
        world = MarketWorld(federated_config(), random_market(index))
        world.reset([EpisodeKey(5, "train", index)])
        play(world, index, 0.3)
        for name, value in world.metrics(0).items():
            totals[name] = totals.get(name, 0.0) + value
    for name in (
        "clients_left",
        "applications_late",
        "interruptions",
        "idle_usd",
        "disk_usd",
        "wasted_hours",
    ):
        assert totals[name] > 0, name


@pytest.mark.parametrize("name", RULES)
def test_every_rule_finishes_every_application(name: str) -> None:
    """Also where quotas are so small that applications could wait for each other."""
    config = federated_config({"clients": [3, 8], "share": 0.4, "budget": 0.0})
    for index in range(2):
        world = MarketWorld(config, random_market(index))
        world.reset([EpisodeKey(index, "train", 1)])
        rule = make_rule(name)
        rule.begin(0, 1)
        done = False
        while not done:
            _, dones = world.step(rule.act_batch(world.observation, np.zeros(1, np.int64)))
            done = bool(dones[0])
        metrics = world.metrics(0)
        assert metrics["unfinished"] == 0
        assert metrics["decisions"] < 5000


def test_applications_leave_the_other_jobs_as_they_were() -> None:
    data, key = random_market(3), EpisodeKey(1, "train", 0)
    config = federated_config({"share": 0.5})
    plain, mixed = draw_episode(small_config(), data, key).jobs, draw_episode(config, data, key).jobs
    tasks = mixed.tasks
    assert tasks is not None
    assert plain.tasks is None
    others = mixed.category != Category.FEDERATED
    kept = np.isin(plain.arrival_s, mixed.arrival_s[others]) & np.isin(
        plain.standard_s, mixed.standard_s[others]
    )
    assert others.sum() == 7
    np.testing.assert_array_equal(plain.execution_s[kept], mixed.execution_s[others])
    servers = np.flatnonzero(tasks.server == np.arange(len(others)))
    servers = servers[tasks.clients[servers] > 0]
    assert len(servers) == 7
    for server in servers:
        rows = np.arange(server, server + 1 + tasks.clients[server])
        assert (tasks.server[rows] == server).all()
        assert len(set(mixed.arrival_s[rows])) == 1
        assert len(set(mixed.executions[rows])) == 1
        epochs = mixed.standard_s[rows[1:]]
        assert tasks.whole_s[server] >= mixed.executions[server] * (epochs.max() + mixed.standard_s[server])


def test_an_epoch_takes_as_long_whatever_was_decided_before() -> None:
    """Epochs of the same client and round on the same offer agree between policies; rounds differ."""
    config = federated_config({"budget": 0.0, "share": 1.0}, {"jobs": 3})
    seen: dict[tuple[int, ...], int] = {}
    agreed, ratios = 0, []
    for policy in range(20):
        world = MarketWorld(config, random_market(2))
        world.reset([EpisodeKey(1, "train", 0)])
        episode, rng, done = world.episodes.job[0], np.random.default_rng(policy), False
        is_client = (episode[:, at.CLIENTS] > 0) & (episode[:, at.SERVER] != np.arange(len(episode)))
        mine: dict[tuple[int, ...], int] = {}
        while not done:
            valid = np.flatnonzero(world.observation["action_mask"][0])
            done = bool(world.step(np.array([rng.choice(valid)]))[1][0])
            state = world.lanes.job[0]
            whole = (state[:, at.PHASE] == at.WORKING) & (world.lanes.job_real[0, :, at.BASE] == 0.0)
            for job in np.flatnonzero(is_client & whole).tolist():
                warm = int(state[job, at.WARM])
                work = int(state[job, at.WORK_S]) - (1 - warm) * int(episode[job, at.COLD_S])
                offer = int(state[job, at.OFFER])
                mine[job, int(state[job, at.EXECUTED]), offer] = work
                ratios.append(work / world.episodes.execution_s[0, job, offer])
        agreed += len(mine.keys() & seen.keys())
        assert all(seen.get(name, work) == work for name, work in mine.items())
        seen |= mine
    assert agreed > 20
    assert 0.7 <= min(ratios) < 0.85
    assert 1.15 < max(ratios) <= 1.31


def test_limited_arrivals_keep_applications_whole_and_copies_share_their_future() -> None:
    world = MarketWorld(federated_config({"share": 0.6}), random_market(5), n_lanes=3)
    world.reset([EpisodeKey(2, "train", index) for index in range(3)])
    rng = np.random.default_rng(1)
    for _ in range(15):
        world.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in world.observation["action_mask"]]))
    world.copy_lanes(np.array([0, 0]), np.array([1, 2]))
    for further in range(4):
        world.copy_lanes(np.array([0]), np.array([2]))
        world.limit_arrivals(np.array([2]), further)
        limit = int(world.lanes.lane[2, at.LIMIT])
        rows = world.episodes.job[world.lanes.episode_of_lane[2]]
        assert limit >= int(world.lanes.lane[2, at.ARRIVED]) + further
        assert rows[limit, at.SERVER] == limit  # the next row begins something new
    active, total = np.ones(3, np.bool_), np.zeros(3)
    while active.any():
        masks = world.observation["action_mask"]
        actions = np.array([int(np.flatnonzero(mask)[0]) if mask.any() else 0 for mask in masks])
        rewards, done = world.step(actions, active)
        total += rewards
        active &= ~done
    assert total[0] == total[1]
    assert world.metrics(0) == world.metrics(1)
    assert world.metrics(2)["unfinished"] == 0


def test_check_env_has_nothing_to_say() -> None:
    register()
    workload = WorkloadConfig(federated=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make("spotweave/MultiCloud-v3", config=MarketWorldConfig(workload)).unwrapped)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 0.0}, r"workload.applications.share is 0.0: expected a share in \(0, 1\]"),
        ({"clients": [0, 3]}, r"workload.applications.clients is \[0, 3\]: expected two bounds"),
        ({"rounds": [5, 2]}, r"workload.applications.rounds is \[5, 2\]: expected two bounds"),
        ({"epoch_spread": 1.0}, "workload.applications.epoch_spread is 1.0: expected 0 <= spread < 1"),
        ({"budget": 1.5}, r"workload.applications.budget is 1.5: expected a share in \[0, 1\]"),
        ({"cold_share": [-0.1, 0.2]}, "workload.applications.cold_share"),
    ],
)
def test_bad_applications_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        MarketWorld(federated_config(changes), random_market(0))
