"""Markets drawn for training: a function of the seed, playable, and without a trace of what was left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.multicloud import MarketWorldConfig, build_market
from envs.simulation.market import columns as at
from envs.simulation.market.config import MarketConfig, WorkloadConfig
from envs.simulation.world import EpisodeKey, WorldError
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 1.5}, r"trainer\.variety\.share is 1\.5: expected a share in 0\.\.1"),
        ({"small_jobs": -0.1}, r"trainer\.variety\.small_jobs"),
        ({"owned": [0, 4]}, r"trainer\.variety\.owned"),
        ({"load": [2.0, 1.0]}, r"trainer\.variety\.load"),
        ({"job_size": [0.0, 1.0]}, r"trainer\.variety\.job_size"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        Variety(**changes).validate()
