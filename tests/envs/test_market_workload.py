"""The drawn workload follows its laws; a mistake in the configuration is one clear line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.simulation.arrivals import ArrivalConfig
from envs.simulation.market.config import MarketConfig, MarketWorldConfig, OfferConfig, WorkloadConfig
from envs.simulation.market.source import draw_episode
from envs.simulation.market.workload import bend_by_hour, execution_seconds
from envs.simulation.market.world import MarketWorld
from envs.simulation.series import StepSeries
from envs.simulation.snapshot import Category
from envs.simulation.world import EpisodeKey, WorldError
from tests.envs.market_cases import SPOT, random_market, series, small_config


def test_execution_time_follows_the_clipped_hetero_factor() -> None:
    """Liu 2022, section 5.3: h = 80, sen = 1, zeta = 10 clips the factors to 70..90."""
    seconds = execution_seconds(
        np.array([1000]), np.array([80]), np.array([1]), np.array([55, 70, 80, 85, 100]), 10.0
    )
    assert seconds.tolist() == [[1143, 1143, 1000, 942, 889]]


def test_jobs_stay_within_their_bounds() -> None:
    config = MarketWorldConfig(WorkloadConfig(jobs=4000), MarketConfig())
    jobs = draw_episode(config, random_market(0), EpisodeKey(0, "train", 0)).jobs
    streams, critical = jobs.category == Category.STREAMING, jobs.category == Category.TIME_CRITICAL
    general = jobs.category == Category.GENERAL
    shares = [general.mean(), critical.mean(), streams.mean()]
    assert shares == pytest.approx([0.4, 0.35, 0.25], abs=0.03)
    assert (np.diff(jobs.arrival_s) >= 0).all()
    one_shot = jobs.standard_s[~streams]
    assert one_shot.min() >= 600
    assert one_shot.max() <= 36_000
    allowed = (jobs.allowance_s[critical] - 900) / jobs.standard_s[critical]
    assert allowed.min() >= 1.3
    assert allowed.max() <= 3.01
    assert (jobs.allowance_s[general] == 0).all()
    period = jobs.period_s[streams]
    assert period.min() >= 600
    assert period.max() <= 1800
    assert (np.abs(jobs.standard_s[streams] / period - 0.45) <= 0.151).all()
    assert (np.abs(jobs.allowance_s[streams] / period - 1.25) <= 0.251).all()
    assert set(jobs.executions[streams]) == set(range(12, 49))
    assert (jobs.executions[~streams] == 1).all()
    assert set(jobs.executors) == {1, 2, 3}
    assert set(jobs.home) == {0, 1, 2}
    assert np.median(jobs.data_gb) == pytest.approx(30, rel=0.1)
    assert jobs.data_gb.min() >= 5
    assert jobs.data_gb.max() <= 200
    np.testing.assert_array_equal(jobs.dump_s, np.ceil(2 + jobs.checkpoint_gb))
    assert set(jobs.interval_s[streams]) == {0}
    assert set(jobs.interval_s[~streams]) == {1800}


def test_the_hours_of_the_day_bend_arrivals_at_the_same_mean_rate() -> None:
    """All load in hour 1: from midnight, 24 h of even load arrive between 01:00 and 02:00."""
    weights = tuple(float(hour == 1) for hour in range(24))
    even = np.arange(1, 49) * 3600
    bent = bend_by_hour(even, weights, 0)
    assert bent[0] == 3600 + 150
    assert bent[23] == 7200
    assert bent[24] == 24 * 3600 + 3600 + 150
    assert bend_by_hour(even[:1], weights, 1800)[0] == 1800 + 150
    np.testing.assert_array_equal(bend_by_hour(even, (1 / 24,) * 24, 1234), even)


def test_each_stream_of_randomness_is_its_own() -> None:
    """More jobs, or another arrival pattern, leave the sizes of the first jobs as they were."""
    data, key = random_market(0), EpisodeKey(0, "train", 0)
    one = draw_episode(small_config(), data, key)
    other = draw_episode(small_config({"arrivals": ArrivalConfig(pattern="bernoulli")}), data, key)
    np.testing.assert_array_equal(one.jobs.standard_s, other.jobs.standard_s)
    np.testing.assert_array_equal(one.jobs.data_gb, other.jobs.data_gb)
    assert one.launch_key == other.launch_key
    assert one.launch_key != one.revocation_key


def test_windows_lie_within_the_split() -> None:
    config, data = small_config(), random_market(0)
    origins = [draw_episode(config, data, EpisodeKey(0, "validation", k)).origin_s for k in range(40)]
    start, end = data.splits["validation"]
    assert min(origins) >= start
    assert max(origins) < end
    assert len(set(origins)) > 30
    for index in range(5):
        episode = draw_episode(config, data, EpisodeKey(0, "validation", index))
        assert episode.origin_s + episode.history_s >= start
        assert all(row.times_s[-1] + episode.origin_s < end for row in episode.availability)
        assert all(row.times_s[-1] + episode.origin_s < end for row in episode.price_usd_hour)


BAD_WORKLOADS: list[tuple[dict[str, Any], str]] = [
    ({"jobs": 0}, "the workload is empty"),
    ({"general": 0.9}, "sum to 1"),
    ({"standard_s": [600, 500]}, r"workload.standard_s is \[600, 500\]"),
    ({"slack": [0.0, 1.0]}, "workload.slack"),
    ({"gangs": [1, 2], "gang_weights": [1.0]}, "one weight"),
    ({"gangs": [64], "gang_weights": [1.0]}, "raise a quota"),
    ({"data_gb_median": float("nan")}, "data_gb_median is nan"),
    ({"arrivals": ArrivalConfig(pattern="weekly")}, "unknown arrival pattern"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_WORKLOADS)
def test_a_bad_workload_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message) as caught:
        MarketWorld(small_config(changes), random_market(0)).reset([EpisodeKey(0, "train", 0)])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": 0}, "market.window is 0"),
        ({"miss_usd": 0.0}, "market.miss_usd is 0.0"),
        ({"beta": 1.5}, "market.beta is 1.5"),
        ({"delay_usd_hour": float("nan")}, "market.delay_usd_hour is nan"),
        ({"providers": ["ibm"]}, "names among aws, gcp, azure"),
    ],
)
def test_a_bad_market_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        MarketWorld(small_config(None, changes), random_market(0))


def test_data_that_do_not_fit_together_are_refused() -> None:
    data = random_market(0)
    config = small_config()
    negative = (*data.price_usd_hour[:-1], series((0, 1.0), (60, -0.1)))
    with pytest.raises(WorldError, match="negative price"):
        MarketWorld(config, replace(data, price_usd_hour=negative))
    with pytest.raises(WorldError, match="give one each"):
        MarketWorld(config, replace(data, availability=data.availability[1:]))
    with pytest.raises(WorldError, match="at least one offer"):
        MarketWorld(config, replace(data, offers=()))
    with pytest.raises(WorldError, match="appears twice"):
        MarketWorld(config, replace(data, offers=(*data.offers[:-1], data.offers[0])))
    with pytest.raises(WorldError, match="not one of the world's regions"):
        MarketWorld(config, replace(data, regions=("home", "east", "south")))
    with pytest.raises(WorldError, match="spells to draw it from"):
        MarketWorld(config, replace(data, availability=(*data.availability[:-1], None)))
    world = MarketWorld(config, replace(data, splits={"train": (0, 86_400)}))
    with pytest.raises(WorldError, match="have no split 'test'"):
        world.reset([EpisodeKey(0, "test", 0)])
    with pytest.raises(WorldError, match="at least one lane"):
        MarketWorld(config, data, n_lanes=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quota": 0}, "quota 0"),
        ({"market": "rented"}, "spot, on_demand or owned"),
        ({"launch_failure": 1.2}, "a probability"),
        ({"interruption": "pause"}, "terminate or hibernate"),
        ({"provider": "ibm"}, "provider 'ibm'"),
    ],
)
def test_a_bad_offer_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        replace(SPOT, **changes)


def test_an_episode_with_too_many_jobs_is_refused() -> None:
    data = random_market(0)
    episode = draw_episode(small_config({"jobs": 20}), data, EpisodeKey(0, "train", 0))
    with pytest.raises(WorldError, match=r"set workload\.jobs to 20"):
        MarketWorld(small_config(), data).load(episode)


def test_series_of_offers_are_named() -> None:
    assert OfferConfig("gcp", "us-east1", "", "a2", "spot", 100, 8).name == "gcp/us-east1/a2/spot"
    assert isinstance(series((0, 1.0)), StepSeries)
