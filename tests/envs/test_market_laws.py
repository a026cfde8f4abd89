"""What holds in every episode of the market world, with federated applications and without."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.agents.rules import RULES, make_rule
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.config import MarketWorldConfig
from spotweave.envs.simulation.market.source import draw_episode
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import EpisodeKey, Timeline
from tests.envs.checks import answer, by_policy, valid
from tests.envs.market_cases import federated_config, random_market, small_config

quick = settings(max_examples=25)
seeds = st.integers(0, 10_000)


def play(world: MarketWorld, seed: int, none_share: float = 0.2) -> list[float]:
    """Random valid decisions to the end, with what must hold at each of them: the rewards."""
    rng = np.random.default_rng(seed)
    columns = world.spec.n_clusters + 1
    rewards, done = [], False
    rows = world.episodes.job[0]
    servers = np.flatnonzero((rows[:, at.CLIENTS] > 0) & (rows[:, at.SERVER] == np.arange(len(rows))))
    aggregated = world.lanes.job[0, servers, at.EXECUTED].copy()
    while not done:
        assert (world.lanes.offer[0, :, [at.USED, at.HALTED]] >= 0).all()
        assert (world.lanes.offer[0, :, at.USED] <= world.offers.fixed[:, at.QUOTA]).all()
        check_masks(world)
        actions = valid(world)
        nones = [action for action in actions if action % columns == columns - 1]
        reward, done = answer(world, int(rng.choice(nones if rng.random() < none_share else actions)))
        rewards.append(reward)
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


def balanced(config: MarketWorldConfig, market: int, policy: int, none_share: float) -> MarketWorld:
    """A world that was played: what was paid is what the uptimes cost, and nothing is left behind."""
    key = EpisodeKey(market, "train", 0)
    world = MarketWorld(config, random_market(market), record=True)
    world.reset([key])
    rewards = play(world, policy, none_share)
    lanes, metrics, timeline = world.lanes, world.metrics(0), world.timeline(0)
    assert (lanes.job[0, : lanes.lane[0, at.LIMIT], at.PHASE] == at.DONE).all()
    assert (lanes.offer[0, :, [at.USED, at.HALTED, at.PRESENT]] == 0).all()
    assert lanes.lane[0, at.QUEUE_N] == 0
    assert sum(rewards) == pytest.approx(-metrics["cost_usd_eq"])
    lateness = 25 * metrics["miss_tc"] + 5 * metrics["miss_batches"] + 0.25 * metrics["delay_hours"]
    assert metrics["cost_usd_eq"] == pytest.approx(metrics["money_usd"] + lateness)
    rent = metrics["on_demand_usd"] + metrics["spot_usd"]
    prices = draw_episode(world.config, world.data, key).price_usd_hour
    assert rent == pytest.approx(expected_rent(world, timeline, prices), abs=1e-6)
    assert rent + metrics["egress_usd"] + metrics["disk_usd"] == pytest.approx(metrics["money_usd"])
    for offer, used in zip(world.data.offers, timeline.used, strict=True):
        assert used.values.max() <= offer.quota
        assert used.values[-1] == 0
    assert len(timeline.interruptions) == metrics["interruptions"]
    return world


@quick
@given(seeds, seeds, st.floats(0.0, 0.7))
def test_every_job_ends_once_and_the_books_balance(market: int, policy: int, none_share: float) -> None:
    world = balanced(small_config(), market, policy, none_share)
    assert world.lanes.lane[0, at.CLOSED] == world.config.workload.jobs
    assert (world.lanes.job[0, :, at.EXECUTED] == world.episodes.job[0, :, at.EXECUTIONS]).all()


@pytest.mark.real
@quick
@given(seeds, seeds, st.floats(0.0, 0.7))
def test_no_round_is_lost_and_the_books_balance(market: int, policy: int, none_share: float) -> None:
    world = balanced(federated_config(), market, policy, none_share)
    metrics, n = world.metrics(0), int(world.lanes.lane[0, at.LIMIT])
    jobs, episode = world.lanes.job[0, :n], world.episodes.job[0, :n]
    assert not world.truncated(0)
    complete = jobs[:, at.EXECUTED] == episode[:, at.EXECUTIONS]
    assert (complete | (jobs[:, at.LEFT] == 1)).all()
    assert 0 <= metrics["idle_usd"] <= metrics["on_demand_usd"] + metrics["spot_usd"] + 1e-9
    budgeted = episode[:, at.BUDGET] > 0
    assert (jobs[budgeted, at.CHARGE] <= episode[budgeted, at.BUDGET]).all()
    assert metrics["clients_left"] == (jobs[:, at.LEFT] * (episode[:, at.SERVER] != np.arange(n))).sum()
    assert (jobs[~budgeted, at.LEFT] * (episode[~budgeted, at.CLIENTS] == 0) == 0).all()


def test_the_random_markets_with_applications_hold_every_event() -> None:
    """The laws above would prove little if, say, no budget ever ended."""
    totals: dict[str, float] = {}
    for index in range(12):
        world = MarketWorld(federated_config(), random_market(index))
        world.reset([EpisodeKey(5, "train", index)])
        play(world, index, 0.3)
        totals = {name: totals.get(name, 0.0) + value for name, value in world.metrics(0).items()}
    events = ("clients_left", "applications_late", "interruptions", "idle_usd", "disk_usd", "wasted_hours")
    assert all(totals[name] > 0 for name in events), totals


@pytest.mark.parametrize("name", RULES)
def test_every_rule_finishes_every_application(name: str) -> None:
    """Also where quotas are so small that applications could wait for each other."""
    config = federated_config({"clients": [3, 8], "share": 0.4, "budget": 0.0})
    for index in range(2):
        world = MarketWorld(config, random_market(index))
        world.reset([EpisodeKey(index, "train", 1)])
        by_policy(world, make_rule(name))
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
            _, done = answer(world, int(rng.choice(valid(world))))
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


@pytest.mark.parametrize(
    "config", [small_config(), federated_config({"share": 0.6})], ids=["jobs", "applications"]
)
def test_limited_arrivals_keep_applications_whole(config: MarketWorldConfig) -> None:
    world = MarketWorld(config, random_market(5), n_lanes=2)
    world.reset([EpisodeKey(2, "train", index) for index in range(2)])
    rng, lane = np.random.default_rng(1), np.array([True, False])
    for _ in range(12):
        world.step(np.full(2, rng.choice(valid(world))), lane)
    for further in range(4):
        world.copy_lanes(np.array([0]), np.array([1]))
        world.limit_arrivals(np.array([1]), further)
        limit, rows = int(world.lanes.lane[1, at.LIMIT]), world.episodes.job[world.lanes.episode_of_lane[1]]
        assert int(world.lanes.lane[1, at.ARRIVED]) + further <= limit < world.lanes.lane[0, at.LIMIT]
        assert config.workload.federated is False or rows[limit, at.SERVER] == limit  # the next row is new
    done = False
    while not done:
        action = np.flatnonzero(world.observation["action_mask"][1])[0]
        done = bool(world.step(np.full(2, action), ~lane)[1][1])
    assert (world.lanes.job[1, :limit, at.PHASE] == at.DONE).all()
    assert world.metrics(1)["unfinished"] == 0


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
