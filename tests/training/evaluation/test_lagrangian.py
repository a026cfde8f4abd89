"""The lower bound against plays of the real world, weak duality, and plans that were worked out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from agents.rules import make_rule
from envs.multicloud import build_market
from envs.simulation.market.config import OfferConfig
from envs.simulation.market.episodes import EpisodeData, Jobs
from envs.simulation.market.source import MarketData, draw_episode
from envs.simulation.market.world import MarketWorld
from envs.simulation.series import StepSeries
from envs.simulation.snapshot import Category
from envs.simulation.world import EpisodeKey
from tests.envs.market_cases import (
    ON_DEMAND,
    OWNED,
    SPOT,
    one_job,
    random_market,
    series,
    small_config,
    story,
)
from training.evaluation.clairvoyant import ClairvoyantPlanner
from training.evaluation.episodes import run_suite
from training.evaluation.lagrangian import RelaxedEpisode, is_covered, lagrangian_bound
from training.evaluation.suite import Suite
from training.markets import market_config


def relaxed(
    jobs: Sequence[Mapping[str, Any]],
    offers: Sequence[OfferConfig],
    availability: Mapping[int, StepSeries] | None = None,
    **changes: Any,
) -> RelaxedEpisode:
    """A story of `market_cases` with its quotas relaxed."""
    world = story(jobs, offers, availability, **changes)
    columns: dict[str, Any] = {name: np.array([job[name] for job in jobs]) for name in jobs[0]}
    execution = np.repeat(columns["standard_s"][:, None], len(offers), axis=1)
    known = tuple((availability or {}).get(c, series((0, 1.0))) for c in range(len(offers)))
    usd = np.array([3.0] * len(offers))
    prices = world.data.price_usd_hour
    return RelaxedEpisode(
        world, EpisodeData(Jobs(**columns, execution_s=execution), known, prices, usd, 0, 1, 1, 0)
    )


def free_of_charge(episode: RelaxedEpisode) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.zeros((len(episode.quota), episode.hours))


class TestByHand:
    """An executor costs 1 USD an hour, an hour of delay 0.25, instances come after 50 s at the earliest.

    Where a set-up takes 600 s, nothing is gained by a second stay.
    """

    @pytest.mark.real
    def test_one_stay(self) -> None:
        episode = relaxed([one_job()], [ON_DEMAND], restart_s=600)
        usd, excess = episode.value(free_of_charge(episode))
        assert usd == pytest.approx(4200 / 3600 + 0.25 * 650 / 3600)
        # Its room from the request at 0 to the end, 4250 s, less the quota of 6 in each hour.
        assert excess[0, :3].tolist() == pytest.approx([1.0 - 6, 650 / 3600 - 6, -6.0])

    def test_a_deadline_that_nobody_can_meet(self) -> None:
        late = one_job(category=Category.TIME_CRITICAL, allowance_s=3000)
        episode = relaxed([late], [ON_DEMAND], restart_s=600)
        assert episode.value(free_of_charge(episode))[0] == pytest.approx(
            25.0 + 4200 / 3600 + 0.25 * 650 / 3600
        )

    def test_an_owned_cluster_costs_nothing(self) -> None:
        episode = relaxed([one_job()], [OWNED, ON_DEMAND], restart_s=600)
        assert episode.value(free_of_charge(episode))[0] == pytest.approx(0.25 * 600 / 3600)

    def test_prices_tell_who_waits(self) -> None:
        """Two jobs that take 4200 s and one executor: one of them waits for the other."""
        alone = dataclasses.replace(OWNED, quota=1)
        episode = relaxed([one_job(), one_job()], [alone], restart_s=600)
        best = 0.25 * (600 + 4200 + 600) / 3600
        found = list(episode.improve(best, 40))
        assert found[0] == pytest.approx(2 * 0.25 * 600 / 3600)
        assert 0.8 * best <= max(found) <= best + 1e-9

    @pytest.mark.real
    def test_a_stream_pays_for_its_batches_and_leaves_between_them(self) -> None:
        """Batches of 600 s, due at 1800 and 3600 s: two stays of 600 s each, where a start costs nothing."""
        stream = one_job(
            category=Category.STREAMING, standard_s=600, executions=2, period_s=1800, allowance_s=600
        )
        episode = relaxed([stream], [ON_DEMAND])
        usd, _ = episode.value(free_of_charge(episode))
        assert 300 / 3600 <= usd <= 1200 / 3600  # at most three steps' bill less
        # A start of 1200 s costs as much as the place between the batches, from 2400 to 3600 s.
        slow = relaxed([stream], [ON_DEMAND], restart_s=1200)
        assert 2700 / 3600 <= slow.value(free_of_charge(slow))[0] <= 3600 / 3600

    def test_what_aws_takes_within_the_first_hour_is_free(self) -> None:
        """Spot for 2000 s, later 3000 s more, at 1 USD; nothing else: the last stay is paid for."""
        up = series((0, 1.0), (2000, 0.0), (6000, 1.0), (9000, 0.0), (20_000, 1.0))
        episode = relaxed([one_job()], [SPOT], {0: up})
        paid = dataclasses.replace(SPOT, free_first_s=0)
        without = relaxed([one_job()], [paid], {0: up})
        usd = episode.value(free_of_charge(episode))[0]
        # 1950 s of work are free and 1650 s are left, of which the grid may give away two steps.
        assert (1650 - 600) / 3600 <= usd <= 1650 / 3600 + 0.25 * (7700 - 3600) / 3600
        assert usd < without.value(free_of_charge(without))[0] - 0.4


def tiny(seed: int, jobs: int) -> tuple[MarketWorld, EpisodeKey, MarketData]:
    """A few short jobs on three offers that flap."""
    whole = random_market(seed)
    kept = [0, 2, 6] if seed % 2 else [2, 4, 6]
    data = dataclasses.replace(
        whole,
        offers=tuple(dataclasses.replace(whole.offers[c], quota=3) for c in kept),
        price_usd_hour=tuple(whole.price_usd_hour[c] for c in kept),
        availability=tuple(whole.availability[c] for c in kept),
        on_demand_usd_hour=tuple(whole.on_demand_usd_hour[c] for c in kept),
    )
    config = small_config({"jobs": jobs, "standard_s": [600, 5000]}, {"decision_interval_s": 900})
    return MarketWorld(config, data, 600), EpisodeKey(seed, "train", 0), data


def best_play(world: MarketWorld, key: EpisodeKey, seed: int) -> float:
    """The least cost of 600 plays: choices by chance, with a different liking for waiting in each lane."""
    rng = np.random.default_rng(seed)
    n, targets = world.n_lanes, world.spec.n_clusters + 1
    world.reset([key] * n)
    active, returns = np.ones(n, np.bool_), np.zeros(n)
    liking = np.where(np.arange(world.spec.n_actions) % targets == targets - 1, 1.0, 0.0)[None, :]
    waits = rng.uniform(-1.0, 0.6, n)[:, None]
    while active.any():
        noise = rng.random((n, world.spec.n_actions)) + liking * waits
        allowed = world.observation["action_mask"] > 0
        rewards, done = world.step(np.where(allowed, noise, -9.0).argmax(axis=1), active)
        returns += rewards
        active &= ~done
    ended = [not world.truncated(lane) for lane in range(n)]
    return float(-returns[ended].max())


@pytest.mark.real
@pytest.mark.parametrize("seed", range(12))
def test_no_play_of_the_real_world_passes_it(seed: int) -> None:
    world, key, _ = tiny(seed, 1 + seed % 3)
    best = best_play(world, key, seed)
    planner = ClairvoyantPlanner(MarketWorld(world.config, world.data, 5), make_rule("expected_cost"))
    best = min(best, planner.play([key])[0].metrics["cost_usd_eq"])
    bound = lagrangian_bound(world, key, best)
    assert bound <= best + 1e-6
    assert bound >= min(0.0, best) - 1.0  # it says something


def every_play(world: MarketWorld, key: EpisodeKey) -> float:
    """The least cost of all sequences of choices, each tried in a copy of the world."""
    world.reset([key], [0])
    free = list(range(1, world.n_lanes))
    costs = {0: 0.0}
    best = np.inf
    targets = world.spec.n_clusters + 1
    while costs:
        sources, copies, actions = [], [], np.zeros(world.n_lanes, np.int64)
        for lane in list(costs):
            valid = np.flatnonzero(world.observation["action_mask"][lane][:targets])
            for k, action in enumerate(valid.tolist()):
                child = lane if k == 0 else free.pop()
                actions[child] = action
                if k > 0:
                    sources.append(lane)
                    copies.append(child)
                    costs[child] = costs[lane]
        world.copy_lanes(np.array(sources, np.int64), np.array(copies, np.int64))
        active = np.zeros(world.n_lanes, np.bool_)
        active[list(costs)] = True
        rewards, done = world.step(actions, active)
        for lane in list(costs):
            costs[lane] -= rewards[lane]
            if done[lane]:
                best = min(best, costs[lane])
            # A job that is late already only gets dearer: what has cost as much as the best play is left.
            if done[lane] or costs[lane] >= best + 1.0 or len(free) < 3:
                free.append(lane)
                del costs[lane]
    return float(best)


@pytest.mark.real
@pytest.mark.parametrize("seed", range(12, 18))
def test_all_sequences_of_one_job(seed: int) -> None:
    world, key, data = tiny(seed, 1)
    many = MarketWorld(world.config, data, 3000)
    best = every_play(many, key)
    bound = lagrangian_bound(world, key, best)
    assert bound <= best + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_any_prices_bound_the_rule(seed: int) -> None:
    """Weak duality, also at prices drawn at random."""
    config = small_config()
    data = random_market(seed)
    stop = tuple(dataclasses.replace(offer, interruption="terminate") for offer in data.offers)
    world = MarketWorld(config, dataclasses.replace(data, offers=stop), 2)
    suite = Suite("small", "train", seed=seed, episodes=2)
    rng = np.random.default_rng(seed)
    for played in run_suite(world, make_rule("expected_cost"), suite):
        cost = played.metrics["cost_usd_eq"]
        episode = RelaxedEpisode(world, draw_episode(config, world.data, played.key))
        for scale in (0.0, 0.01, 0.3):
            prices = scale * rng.exponential(size=(len(episode.quota), episode.hours))
            assert episode.value(prices)[0] <= cost
        assert max(episode.improve(cost, 10)) <= cost


@pytest.mark.real
def test_bound_plan_and_rule_in_a_published_market() -> None:
    world = build_market(market_config("two_v100", ["env.workload.jobs=40"]), 5)
    suite = Suite("validation", "validation", seed=2002, episodes=2)
    rule = run_suite(world, make_rule("expected_cost"), suite)
    plans = [ClairvoyantPlanner(world, make_rule("expected_cost"), 40).play([r.key])[0] for r in rule]
    for played, plan in zip(rule, plans, strict=True):
        target = plan.metrics["cost_usd_eq"]
        bound = lagrangian_bound(world, played.key, target, rounds=15)
        assert bound <= target <= played.metrics["cost_usd_eq"] + 1e-9
        assert bound > 0.0


def test_other_markets_are_refused() -> None:
    world = MarketWorld(small_config(), random_market(0))
    assert not is_covered(world)
    with pytest.raises(ValueError, match="hibernation or moves more often than every 300 s has no"):
        lagrangian_bound(world, EpisodeKey(0, "train", 0), 1.0)
