"""MultiCloud-v5 on the recorded bundle and on users' traces."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from spotweave.agents.rules import make_rule
from spotweave.envs.environments import make
from spotweave.envs.infrastructure import PAPER_POWER, AnyClustersConfig, draw_infrastructure
from spotweave.envs.market_data import MarketWorldConfig, build_market, recorded_market
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.config import MarketConfig, OwnedConfig, WorkloadConfig
from spotweave.envs.simulation.market.source import draw_episode, fingerprint
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.streams import exp
from spotweave.envs.simulation.world import EpisodeKey, WorldError
from spotweave.envs.traces.bundle import SPLIT_DAYS, load_bundle
from spotweave.envs.traces.storage import TraceError
from spotweave.envs.variety import MOST_DECISIONS, Variety, draw_market, smaller, validation_markets
from spotweave.training.evaluation.episodes import Suite, run_suite
from tests.envs.traces_cases import write_trace


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


def test_further_owned_clusters_have_their_own_place_and_speed() -> None:
    more = [OwnedConfig("us-west-2", 6, 55), OwnedConfig("us-central1", 4, 100)]
    market = recorded_market(MarketConfig(more_owned=more))
    owned = {one.name: (one.quota, one.hetero_factor) for one in market.offers if one.market == "owned"}
    assert owned == {"owned/us-east-1": (8, 70), "owned/us-west-2": (6, 55), "owned/us-central1": (4, 100)}
    with pytest.raises(WorldError, match=r"more_owned of us-west-2\.executors is 0"):
        MarketConfig(more_owned=[OwnedConfig("us-west-2", 0, 55)]).validate()
    with pytest.raises(TraceError, match="nowhere"):
        recorded_market(MarketConfig(more_owned=[OwnedConfig("nowhere", 6, 55)]))


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


# Markets and infrastructures drawn at random: functions of the seed, playable, nothing shown too much.


ALWAYS = Variety(share=1.0)
CONFIG = MarketWorldConfig(WorkloadConfig(jobs=12))


def test_the_first_round_and_a_share_of_the_others_play_the_configured_market() -> None:
    assert draw_market(CONFIG, ALWAYS, 0, 0) is CONFIG
    assert all(draw_market(CONFIG, Variety(), 0, number) is CONFIG for number in range(20))
    short = dataclasses.replace(CONFIG, market=dataclasses.replace(CONFIG.market, max_decisions=9))
    assert draw_market(short, ALWAYS, 0, 1).market.max_decisions == 9
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
    assert drawn.market.max_decisions == MOST_DECISIONS < CONFIG.market.max_decisions
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
    rented = {name for name in world.spec.cluster_names if not name.startswith("owned/")}
    assert rented <= set(drawn.market.offers)
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
