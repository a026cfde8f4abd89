"""MultiCloud-v3 on the recorded bundle and on users' traces."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agents.rules import make_rule
from envs.environments import make, make_vector, register
from envs.market_data import recorded_market
from envs.multicloud import MarketWorldConfig, build_market
from envs.simulation import columns as col
from envs.simulation.market.config import MarketConfig, WorkloadConfig
from envs.simulation.market.source import draw_episode, fingerprint
from envs.simulation.streams import exp
from envs.simulation.world import EpisodeKey, WorldError
from envs.traces.bundle import SPLIT_DAYS, load_bundle
from envs.traces.storage import TraceError
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
    for c in spot:
        np.testing.assert_array_equal(first.availability[c].times_s, again.availability[c].times_s)
        assert first.availability[c].times_s[0] == first.history_s
    assert any(
        first.availability[c].times_s.tolist() != second.availability[c].times_s.tolist() for c in spot
    )


def test_an_episode_runs_to_its_end_and_reports_the_objective() -> None:
    env = make("multicloud", small())
    _, info = env.reset(seed=3, options={"split": "test", "index": 1})
    total, terminated = 0.0, False
    while not terminated:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert observation in env.observation_space
        assert not truncated
        total += reward
    assert info["metrics"]["cost_usd_eq"] == pytest.approx(-total)
    assert info["metrics"]["unfinished"] == 0


def test_a_cut_episode_is_truncated_not_terminated() -> None:
    env = make("multicloud", small(max_decisions=5))
    env.reset(seed=3)
    flags = [env.step(env.action_space.sample())[2:4] for _ in range(5)]
    assert flags == [(False, False)] * 4 + [(False, True)]


def test_the_vector_form_plays_what_single_environments_play() -> None:
    vector = make_vector("multicloud", 3, small())
    seen, _ = vector.reset(seed=11)
    for lane in range(3):
        env = make("multicloud", small())
        alone, _ = env.reset(seed=11 + lane)
        for name, array in alone.items():
            np.testing.assert_array_equal(seen[name][lane], array)  # type: ignore[literal-required]


def test_it_is_registered_and_draws_itself() -> None:
    register()
    env = gym.make("spotweave/MultiCloud-v3", config=small(), render_mode="rgb_array")
    env.reset(seed=1)
    for _ in range(10):  # twelve jobs take at least twelve decisions
        env.step(env.action_space.sample())
    picture: Any = env.render()
    assert isinstance(picture, np.ndarray)
    assert picture.dtype == np.uint8
    assert picture.ndim == 3


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


def test_an_offer_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        WorldError, match=r"market\.offers has 'aws/mars': expected names among aws/us-east-1a"
    ):
        build_market(small(offers=["aws/mars"]))


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


def write_trace(folder: Path, market: str, rows: str, **meta: object) -> None:
    folder.mkdir(parents=True)
    facts = {
        "format": "spotweave-market-trace",
        "format_version": 1,
        "provider": "aws",
        "region": "us-west-2",
        "zone": "us-west-2a" if market == "spot" else "",
        "instance_type": "x9.large",
        "market": market,
        "start_utc": "2026-01-01T00:00:00Z",
        "source": "test",
        "licence": "none",
    }
    (folder / "trace.json").write_text(json.dumps({**facts, **meta}))
    (folder / "series.csv").write_text(rows)


def spot_rows(days: int) -> str:
    lines = [f"{t},{t // 7200 % 2},{0.4 + t % 5 / 100}" for t in range(0, days * 86_400, 3600)]
    return "time_s,available,price_usd_hour\n" + "\n".join(lines) + "\n"


def test_user_traces_become_the_offers(tmp_path: Path) -> None:
    write_trace(tmp_path / "spot", "spot", spot_rows(20), polarity="available")
    end = 20 * 86_400
    write_trace(tmp_path / "list", "on_demand", f"time_s,price_usd_hour\n0,1.006\n{end},1.1\n")
    world = build_market(small(traces=str(tmp_path)))
    assert set(world.spec.cluster_names) == {
        "owned/us-east-1",
        "aws/us-west-2a/x9.large/spot",
        "aws/us-west-2/x9.large/on_demand",
    }
    for split in ("train", "validation", "test"):
        world.reset([EpisodeKey(0, split, 0)])
        spot = world.spec.cluster_names.index("aws/us-west-2a/x9.large/spot")
        row = world.observation["clusters"][0, spot]
        assert row[col.ON_DEMAND_USD_HOUR] == np.float32(1.006)
        assert world.observation["jobs"][0, 0, col.PRESENT] == 1


def test_user_traces_without_an_on_demand_price_are_refused(tmp_path: Path) -> None:
    write_trace(tmp_path / "spot", "spot", spot_rows(20), polarity="available")
    with pytest.raises(TraceError, match="add an on_demand trace"):
        build_market(small(traces=str(tmp_path)))


def test_short_or_foreign_traces_are_refused(tmp_path: Path) -> None:
    rows = "time_s,available,price_usd_hour\n0,1,0.4\n30,1,0.4\n"
    write_trace(tmp_path / "a" / "spot", "spot", rows, polarity="available")
    write_trace(tmp_path / "a" / "list", "on_demand", "time_s,price_usd_hour\n0,1.0\n")
    with pytest.raises(TraceError, match="too short"):
        build_market(small(traces=str(tmp_path / "a")))
    write_trace(tmp_path / "b", "spot", spot_rows(9), polarity="available", provider="ibm")
    with pytest.raises(TraceError, match="provider 'ibm'"):
        build_market(small(traces=str(tmp_path / "b")))
    with pytest.raises(TraceError):
        build_market(small(traces=str(tmp_path / "nowhere")))
