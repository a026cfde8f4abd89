"""Markets and infrastructures drawn at random: functions of the seed, playable, nothing shown too much."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.infrastructure import PAPER_POWER, AnyClustersConfig, draw_infrastructure
from envs.market_data import MarketWorldConfig, build_market
from envs.simulation.market import columns as at
from envs.simulation.market.config import MarketConfig, WorkloadConfig
from envs.simulation.slices.config import SliceWorldConfig
from envs.simulation.world import EpisodeKey
from envs.variety import Variety, draw_market, smaller, validation_markets

ALWAYS = Variety(share=1.0)
CONFIG = MarketWorldConfig(WorkloadConfig(jobs=12))


def test_the_first_round_and_a_share_of_the_others_play_the_configured_market() -> None:
    assert draw_market(CONFIG, ALWAYS, 0, 0) is CONFIG
    assert all(draw_market(CONFIG, Variety(), 0, number) is CONFIG for number in range(20))
    half = [draw_market(CONFIG, Variety(share=0.5), 0, number) is CONFIG for number in range(1, 201)]
    assert 70 <= sum(half) <= 130  # 100 expected, standard deviation 7


def test_a_draw_is_a_function_of_seed_and_number() -> None:
    first = [draw_market(CONFIG, ALWAYS, 7, number) for number in range(6)]
    assert first == [draw_market(CONFIG, ALWAYS, 7, number) for number in range(6)]
    other = [draw_market(CONFIG, ALWAYS, 8, number) for number in range(6)]
    assert first[1:] != other[1:]
    assert len({tuple(market.market.offers) for market in first[1:]}) > 1


@pytest.mark.parametrize("number", range(1, 13))
def test_every_drawn_market_has_room_for_every_job(number: int) -> None:
    drawn = draw_market(CONFIG, ALWAYS, 1, number)
    world = build_market(drawn)
    sides = {offer.market for offer in world.data.offers if offer.market != "owned"}
    assert sides == {"spot", "on_demand"}
    assert 80 <= drawn.workload.arrival_unit_s <= 320
    largest = max(offer.quota for offer in world.data.offers if offer.market == "on_demand")
    world.reset([EpisodeKey(0, "train", number)])
    slot = world.lanes.episode_of_lane[0]
    assert world.episodes.job[slot, :, at.EXECUTORS].max() <= largest


def test_nothing_of_an_offer_that_is_left_out_can_be_seen() -> None:
    """What is seen of the drawn offers does not depend on the prices of the others."""
    drawn = draw_market(CONFIG, ALWAYS, 2, 3)
    world = build_market(drawn)
    world.reset([EpisodeKey(0, "train", 1)])
    assert world.observation["clusters"].shape[1] == len(world.data.offers) < 20
    assert set(world.spec.cluster_names) <= set(drawn.market.offers) | {"owned/us-east-1"}
    assert set(world.data.regions) == {offer.region for offer in world.data.offers}


def test_smaller_jobs_have_shorter_times_and_less_data() -> None:
    small = smaller(WorkloadConfig(), 0.01)
    assert small.standard_s == [6, 360]
    assert small.data_gb == [0.05, 2.0]
    assert math.isclose(small.data_gb_median, 0.3)
    assert np.allclose(small.checkpoint_gb, [0.01, 0.2])


def test_validation_has_each_provider_alone_and_jobs_as_configured() -> None:
    markets = validation_markets(CONFIG, ALWAYS, 0)
    assert markets[0] is CONFIG
    assert [market.market.providers for market in markets[1:3]] == [["aws"], ["gcp"]]
    assert len(markets) == 6
    assert all(market.workload == CONFIG.workload for market in markets)
    alone = MarketWorldConfig(market=MarketConfig(providers=["aws"]))
    assert len(validation_markets(alone, ALWAYS, 0)) == 4


def power(config: SliceWorldConfig) -> float:
    """Executors, each counted with its hetero factor / 80."""
    return sum(c * f for c, f in zip(config.capacities, config.hetero_factors, strict=True)) / 80.0


def test_the_papers_power_is_that_of_its_clusters() -> None:
    # (800 * 70 + 1200 * 60 + 1500 * 100 + 1800 * 80 + 2300 * 90) / 80
    assert power(SliceWorldConfig()) == pytest.approx(PAPER_POWER)


@pytest.mark.parametrize("n_clusters", [1, 3, 5, 12, 50])
def test_a_drawn_infrastructure_is_valid_and_its_load_follows_its_power(n_clusters: int) -> None:
    for seed in range(5):
        config = draw_infrastructure(SliceWorldConfig(), n_clusters, seed)
        config.validate()
        assert len(config.capacities) == n_clusters
        assert all(600 <= capacity <= 2400 for capacity in config.capacities)
        assert all(60.0 <= factor <= 100.0 for factor in config.hetero_factors)
        assert sum(config.elastic) == round(0.4 * n_clusters)
        assert config.n_jobs == 1000
        interval = (1 + config.workload.arrivals.b) / 2
        # The paper's mean interval is 17; b is a whole number, which is coarse where arrivals are frequent.
        assert interval * power(config) / PAPER_POWER == pytest.approx(17.0, rel=0.26 / interval + 0.001)


def test_the_draw_is_a_function_of_the_number_and_the_seed() -> None:
    base = SliceWorldConfig()
    assert draw_infrastructure(base, 7, 1) == draw_infrastructure(base, 7, 1)
    assert draw_infrastructure(base, 7, 1) != draw_infrastructure(base, 7, 2)
    assert base == SliceWorldConfig()


def test_members_span_the_range_and_splits_share_none() -> None:
    config = AnyClustersConfig(members=6)
    training, validation = config.members_of("train"), config.members_of("validation")
    assert [member.clusters for member in training] == [3, 5, 9, 16, 28, 50]
    assert (validation[0].clusters, validation[-1].clusters) == (3, 50)
    drawn = [member.drawn().capacities for member in [*training, *validation]]
    assert len({tuple(capacities) for capacities in drawn}) == len(drawn)
    others = AnyClustersConfig(members=6, seed=1).members_of("train")
    assert not {member.seed for member in others} & {member.seed for member in [*training, *validation]}


def test_one_infrastructure_stands_for_itself() -> None:
    config = AnyClustersConfig(clusters=4, seed=9)
    assert config.members_of("train") == config.members_of("validation") == [config]
