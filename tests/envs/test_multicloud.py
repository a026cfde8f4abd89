"""MultiCloud-v3 on the recorded bundle and on users' traces."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from agents.rules import make_rule
from envs.environments import make
from envs.market_data import MarketWorldConfig, build_market, recorded_market
from envs.simulation import columns as col
from envs.simulation.market.config import MarketConfig, WorkloadConfig
from envs.simulation.market.source import draw_episode, fingerprint
from envs.simulation.streams import exp
from envs.simulation.world import EpisodeKey
from envs.traces.bundle import SPLIT_DAYS, load_bundle
from envs.traces.storage import TraceError
from tests.envs.traces_cases import write_trace
from training.evaluation.episodes import Suite, run_suite


def small(**market: object) -> MarketWorldConfig:
    return MarketWorldConfig(WorkloadConfig(jobs=12), MarketConfig(**market))  # type: ignore[arg-type]


def test_the_default_world_has_the_documented_offers() -> None:
    data = recorded_market(MarketConfig())
    names = [offer.name for offer in data.offers]
    assert len(names) == 20
    assert names[0] == "owned/us-east-1"
    assert sum(offer.market == "spot" and offer.provider == "aws" for offer in data.offers) == 9
    assert sum(offer.market == "on_demand" for offer in data.offers) == 5
    speeds = {offer.instance_type: offer.hetero_factor for offer in data.offers}
    assert speeds == {"": 70, "p3.2xlarge": 70, "a2-highgpu-1g": 100, "g2-standard-8": 55}
    for offer, known in zip(data.offers, data.availability, strict=True):
        assert (known is None) == (offer.provider == "gcp" and offer.market == "spot")
        assert offer.notice_s == ({"aws": 120, "gcp": 30}[offer.provider] if offer.market == "spot" else 0)
        assert offer.free_first_s == (3600 if (offer.provider, offer.market) == ("aws", "spot") else 0)


def test_recorded_prices_and_availability_are_shown_as_recorded() -> None:
    world = build_market(small())
    key = EpisodeKey(4, "validation", 2)
    world.reset([key])
    bundle = load_bundle()
    origin = draw_episode(world.config, world.data, key).origin_s
    low, high = SPLIT_DAYS["validation"]
    assert low * 86_400 <= origin < high * 86_400
    at_s = origin + int(world.lanes.lane[0, 0])
    rows = world.observation["clusters"][0]
    for offer, row in zip(world.data.offers, rows, strict=True):
        if offer.provider == "aws" and offer.market == "spot":
            trace = bundle.offer_trace("aws", offer.region, offer.zone, "p3.2xlarge", "spot")
            assert row[col.PRICE_USD_HOUR] == pytest.approx(trace.price_usd_hour.at(at_s), rel=2e-6)
            assert row[col.AVAILABLE] == trace.availability.at(at_s)
            since = origin + world.episodes.history_s[0] if at_s - 86_400 < low * 86_400 else at_s - 86_400
            ticks = np.arange(since, at_s)
            known = trace.availability
            up = known.values[np.searchsorted(known.times_s, ticks, side="right") - 1]
            assert row[col.UP_RATIO] == pytest.approx(up.mean(), abs=1e-6)
        if offer.market == "on_demand":
            listed = row[col.ON_DEMAND_USD_HOUR]
            assert row[col.PRICE_USD_HOUR] == pytest.approx(listed, rel=2e-6)


def test_gcp_availability_differs_between_episodes_and_not_between_policies() -> None:
    world = build_market(small())
    first, second = (draw_episode(world.config, world.data, EpisodeKey(1, "train", k)) for k in (0, 1))
    again = draw_episode(world.config, world.data, EpisodeKey(1, "train", 0))
    spot = [c for c, known in enumerate(world.data.availability) if known is None]
    assert len(spot) == 5
    times_s = [[episode.availability[c].times_s.tolist() for c in spot] for episode in (first, again, second)]
    assert times_s[0] == times_s[1] != times_s[2]
    assert all(row[0] == first.history_s for row in times_s[0])


def test_a_cut_episode_is_truncated_not_terminated() -> None:
    env = make("multicloud", small(max_decisions=5))
    env.reset(seed=3)
    flags = [env.step(env.action_space.sample())[2:4] for _ in range(5)]
    assert flags == [(False, False)] * 4 + [(False, True)]


def test_providers_and_quotas_change_the_world() -> None:
    world = build_market(small(providers=["aws"], spot_quota=3, owned_executors=2))
    assert world.spec.n_clusters == 13
    world.reset([EpisodeKey(0, "train", 0)])
    quotas = world.observation["clusters"][0, :, col.CAPACITY_MAX]
    assert quotas.tolist() == [2] + [3] * 9 + [16] * 3


def test_a_world_of_some_offers_is_a_world_without_the_others() -> None:
    every = build_market(small())
    aws = [offer.name for offer in every.data.offers if offer.provider == "aws"]
    worlds = [build_market(small(offers=aws)), build_market(small(providers=["aws"]))]
    keys = [EpisodeKey(3, "validation", index) for index in range(2)]
    assert worlds[0].spec == worlds[1].spec
    assert [worlds[0].fingerprint(key) for key in keys] == [worlds[1].fingerprint(key) for key in keys]
    assert worlds[0].data.regions == ("us-east-1", "us-east-2", "us-west-2")
    np.testing.assert_array_equal(worlds[0].data.egress_usd_gb, worlds[1].data.egress_usd_gb)


def test_only_the_last_bits_of_an_episode_are_no_part_of_its_fingerprint() -> None:
    world = build_market(small())
    episode = draw_episode(world.config, world.data, EpisodeKey(3, "validation", 0))

    def with_sizes(factor: float) -> str:
        jobs = dataclasses.replace(episode.jobs, checkpoint_gb=factor * episode.jobs.checkpoint_gb)
        return fingerprint(dataclasses.replace(episode, jobs=jobs))

    assert with_sizes(1.0) == world.fingerprint(EpisodeKey(3, "validation", 0))
    assert with_sizes(1.0 + 2.0**-52) == with_sizes(1.0)
    assert with_sizes(1.000001) != with_sizes(1.0)


def test_what_is_drawn_has_the_bits_of_the_c_library() -> None:
    values = np.random.default_rng(0).normal(size=(3, 40))
    expected = [[math.exp(value) for value in row] for row in values]
    np.testing.assert_array_equal(exp(values), expected)
    assert exp(np.empty((0, 2))).shape == (0, 2)


def test_a_world_without_an_owned_cluster() -> None:
    world = build_market(small(owned_executors=0, providers=["gcp"]))
    assert world.spec.n_clusters == 7
    assert not any(name.startswith("owned") for name in world.spec.cluster_names)
    results = run_suite(world, make_rule("spot_fallback"), Suite("few", "train", 5, 2))
    assert all(result.metrics["unfinished"] == 0 for result in results)


def test_hibernation_is_a_setting() -> None:
    modes = {offer.interruption for offer in recorded_market(MarketConfig(hibernate=True)).offers}
    assert modes == {"hibernate", "terminate"}


# -- users' traces ---------------------------------------------------------------------------------------


def list_and_spot(folder: Path, prices: str, spot: str) -> MarketWorldConfig:
    """The settings of a market of one spot and one on-demand trace of an unknown instance type."""
    facts = {"region": "us-west-2", "instance_type": "x9.large", "tick_s": None}
    write_trace(folder / "list", prices, zone="", market="on_demand", polarity=None, **facts)
    write_trace(folder / "spot", spot, zone="us-west-2a", **facts)
    return small(traces=str(folder))


def spot_rows(days: int) -> str:
    lines = [f"{t},{t // 7200 % 2},{0.4 + t % 5 / 100}" for t in range(0, days * 86_400, 3600)]
    return "time_s,available,price_usd_hour\n" + "\n".join(lines) + "\n"


def test_user_traces_become_the_offers(tmp_path: Path) -> None:
    prices = f"time_s,price_usd_hour\n0,1.006\n{20 * 86_400},1.1\n"
    world = build_market(list_and_spot(tmp_path, prices, spot_rows(20)))
    names = ("owned/us-east-1", "aws/us-west-2a/x9.large/spot", "aws/us-west-2/x9.large/on_demand")
    assert set(world.spec.cluster_names) == set(names)
    spot = world.spec.cluster_names.index("aws/us-west-2a/x9.large/spot")
    for split in ("train", "validation", "test"):
        world.reset([EpisodeKey(0, split, 0)])
        assert world.observation["clusters"][0, spot, col.ON_DEMAND_USD_HOUR] == np.float32(1.006)
        assert world.observation["jobs"][0, 0, col.PRESENT] == 1


def test_short_or_foreign_traces_and_those_without_an_on_demand_price_are_refused(tmp_path: Path) -> None:
    short = "time_s,available,price_usd_hour\n0,1,0.4\n30,1,0.4\n"
    with pytest.raises(TraceError, match="too short"):
        build_market(list_and_spot(tmp_path / "a", "time_s,price_usd_hour\n0,1.0\n", short))
    write_trace(tmp_path / "b", spot_rows(9), tick_s=None, provider="ibm")
    with pytest.raises(TraceError, match="provider 'ibm'"):
        build_market(small(traces=str(tmp_path / "b")))
    write_trace(tmp_path / "c", spot_rows(20), tick_s=None, instance_type="x9.large")
    with pytest.raises(TraceError, match="add an on_demand trace"):
        build_market(small(traces=str(tmp_path / "c")))
    with pytest.raises(TraceError):
        build_market(small(traces=str(tmp_path / "nowhere")))
