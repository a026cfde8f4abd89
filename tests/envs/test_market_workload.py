"""The drawn workload follows its laws, a recorded log is played as it is, and mistakes are one clear line."""

from __future__ import annotations

import gzip
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spotweave.envs.market_data import build_market, market_data
from spotweave.envs.simulation.arrivals import ArrivalConfig
from spotweave.envs.simulation.availability import (
    Exponential,
    LognormalComponent,
    LognormalMixture,
    OnOff,
    SpellParameters,
    generate_availability,
    poisson_parameters,
)
from spotweave.envs.simulation.market.config import MarketConfig, MarketWorldConfig, WorkloadConfig
from spotweave.envs.simulation.market.episodes import EpisodeData
from spotweave.envs.simulation.market.source import draw_episode
from spotweave.envs.simulation.market.workload import bend_by_hour, execution_seconds
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.streams import SPLITS
from spotweave.envs.simulation.world import EpisodeKey, WorldError
from spotweave.envs.traces.bundle import load_fitted
from spotweave.envs.traces.command import main
from spotweave.envs.traces.storage import TraceError
from tests.envs.market_cases import SPOT, random_market, series, small_config
from tests.envs.traces_cases import refusal


def test_execution_time_follows_the_clipped_hetero_factor() -> None:
    """Liu 2022, section 5.3: h = 80, sen = 1, zeta = 10 clips the factors to 70..90."""
    seconds = execution_seconds(
        np.array([1000]), np.array([80]), np.array([1]), np.array([55, 70, 80, 85, 100]), 10.0
    )
    assert seconds.tolist() == [[1143, 1143, 1000, 942, 889]]


def within(values: NDArray[Any], least: float, most: float) -> bool:
    return bool(values.min() >= least and values.max() <= most)


def test_jobs_stay_within_their_bounds() -> None:
    config = MarketWorldConfig(WorkloadConfig(jobs=4000), MarketConfig())
    jobs = draw_episode(config, random_market(0), EpisodeKey(0, "train", 0)).jobs
    streams, critical = jobs.category == Category.STREAMING, jobs.category == Category.TIME_CRITICAL
    general = jobs.category == Category.GENERAL
    shares = [general.mean(), critical.mean(), streams.mean()]
    assert shares == pytest.approx([0.4, 0.35, 0.25], abs=0.03)
    assert (np.diff(jobs.arrival_s) >= 0).all()
    assert within(jobs.standard_s[~streams], 600, 36_000)
    assert within((jobs.allowance_s[critical] - 900) / jobs.standard_s[critical], 1.3, 3.01)
    assert (jobs.allowance_s[general] == 0).all()
    period = jobs.period_s[streams]
    assert within(period, 600, 1800)
    assert (np.abs(jobs.standard_s[streams] / period - 0.45) <= 0.151).all()
    assert (np.abs(jobs.allowance_s[streams] / period - 1.25) <= 0.251).all()
    assert set(jobs.executions[streams]) == set(range(12, 49))
    assert (jobs.executions[~streams] == 1).all()
    assert set(jobs.executors) == {1, 2, 3}
    assert set(jobs.home) == {0, 1, 2}
    assert np.median(jobs.data_gb) == pytest.approx(30, rel=0.1)
    assert within(jobs.data_gb, 5, 200)
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
    episodes = [draw_episode(config, data, EpisodeKey(0, "validation", k)) for k in range(40)]
    start, end = data.splits["validation"]
    assert len({episode.origin_s for episode in episodes}) > 30
    for episode in episodes:
        assert start <= episode.origin_s < end
        assert episode.origin_s + episode.history_s >= start
        rows = (*episode.availability, *episode.price_usd_hour)
        assert all(row.times_s[-1] + episode.origin_s < end for row in rows)


def test_data_that_do_not_fit_together_are_refused() -> None:
    data = random_market(0)
    config = small_config()
    changes: dict[str, dict[str, Any]] = {
        "negative price": {"price_usd_hour": (*data.price_usd_hour[:-1], series((0, 1.0), (60, -0.1)))},
        "give one each": {"availability": data.availability[1:]},
        "at least one offer": {"offers": ()},
        "appears twice": {"offers": (*data.offers[:-1], data.offers[0])},
        "not one of the world's regions": {"regions": ("home", "east", "south")},
        "spells to draw it from": {"availability": (*data.availability[:-1], None)},
    }
    for message, change in changes.items():
        with pytest.raises(WorldError, match=message):
            MarketWorld(config, replace(data, **change))
    world = MarketWorld(config, replace(data, splits={"train": (0, 86_400)}))
    with pytest.raises(WorldError, match="have no split 'test'"):
        world.reset([EpisodeKey(0, "test", 0)])
    with pytest.raises(WorldError, match="at least one lane"):
        MarketWorld(config, data, n_lanes=0)
    episode = draw_episode(small_config({"jobs": 20}), data, EpisodeKey(0, "train", 0))
    with pytest.raises(WorldError, match=r"set workload\.jobs to 20"):
        MarketWorld(small_config(), data).load(episode)


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


def log_of(folder: Path, jobs: int, packed: bool = False) -> Path:
    """A job trace: job k is submitted at 100 k, runs for 1000 + k s on 1, 2, ..., 20 processors."""
    lines = [
        f"{k + 1} {100 * k} -1 {1000 + k} {k % 20 + 1} -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1"
        for k in range(jobs)
    ]
    text = "\n".join(["; MaxProcs: 128", *lines, ""]).encode()
    path = folder / ("log.swf.gz" if packed else "log.swf")
    path.write_bytes(gzip.compress(text) if packed else text)
    out = folder / path.name.replace(".", "-")
    main(["import", str(path), "--format", "swf", "--out", str(out)])
    return out


def playing(trace: Path, **workload: Any) -> MarketWorldConfig:
    return MarketWorldConfig(workload=WorkloadConfig(trace=str(trace), **workload))


def episodes(config: MarketWorldConfig, split: str, count: int = 8) -> list[EpisodeData]:
    world = build_market(config)
    return [draw_episode(config, world.data, EpisodeKey(0, split, k)) for k in range(count)]  # type: ignore[arg-type]


def test_an_episode_plays_jobs_of_the_log_in_a_row_and_no_split_sees_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = playing(log_of(tmp_path, 1000), jobs=30)
    kept = [k for k in range(1000) if k % 20 + 1 <= 16]
    seen: dict[str, set[int]] = {}
    with caplog.at_level(logging.WARNING):
        for split in SPLITS:
            for one in episodes(config, split):
                rows = (one.jobs.standard_s - 1000).tolist()
                start = kept.index(rows[0])
                assert rows == kept[start : start + 30]
                assert (one.jobs.executors == np.array(rows) % 20 + 1).all()
                assert (one.jobs.arrival_s == 100 * (np.array(rows) - rows[0])).all()
                assert not (one.jobs.category == Category.STREAMING).any()
                seen.setdefault(split, set()).update(rows)
    assert max(seen["train"]) < min(seen["validation"])
    assert max(seen["validation"]) < min(seen["test"])
    (line,) = {record.getMessage() for record in caplog.records}
    assert line.endswith(
        "200 of 1000 jobs need more than 16 executors, the quota of the largest offer, and are left out"
    )


def test_half_the_arrival_unit_is_twice_the_load(tmp_path: Path) -> None:
    folder = log_of(tmp_path, 300)
    (usual,) = episodes(playing(folder, jobs=9), "train", 1)
    (dense,) = episodes(playing(folder, jobs=9, arrival_unit_s=80), "train", 1)
    assert (2 * dense.jobs.arrival_s == usual.jobs.arrival_s).all()


def test_a_packed_log_is_the_same_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, packed = log_of(tmp_path, 40), log_of(tmp_path, 40, packed=True)
    assert (plain / "jobs.csv").read_bytes() == (packed / "jobs.csv").read_bytes()
    log = tmp_path / "log.swf.gz"
    log.write_bytes(log.read_bytes()[:-9])
    capsys.readouterr()
    line = refusal(capsys, "import", log, "--format", "swf", "--out", tmp_path / "cut")
    assert "log.swf.gz cannot be read: Compressed file ended before" in line


def test_what_cannot_be_played_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = log_of(tmp_path, 100)
    with pytest.raises(WorldError, match=r"52 jobs in its train part, workload\.jobs asks for 60: lower"):
        build_market(playing(folder, jobs=60))
    with pytest.raises(WorldError, match="jobs of a log are no streams"):
        build_market(playing(folder, general=0.0, time_critical=0.0, streaming=1.0))
    with pytest.raises(TraceError, match=r"it holds jobs, which env\.workload.trace reads"):
        market_data(MarketConfig(traces=str(folder)))


# The generator of synthetic availability against its own formulae and against the recording.


DAY_S = 86_400
TICK_S = 195


def on_grid(series: StepSeries, horizon_s: int) -> NDArray[np.bool_]:
    grid_s = np.arange(0, horizon_s, TICK_S)
    return series.values[np.searchsorted(series.times_s, grid_s, side="right") - 1] > 0.5


def up_s(series: StepSeries, horizon_s: int) -> NDArray[np.int64]:
    """Complete spells of being up."""
    lengths = np.diff(np.append(series.times_s, horizon_s))
    return np.asarray(lengths[1:-1][series.values[1:-1] > 0.5])


def one(mean_s: float, sigma: float) -> LognormalMixture:
    return LognormalMixture((LognormalComponent(1.0, float(np.log(mean_s) - sigma**2 / 2), sigma),))


def test_shares_and_correlations_by_hand() -> None:
    # Shares 3/4, 4/5 and 5/6 multiply to 1/2. Inside a region: m(1 - qg) / (qg(1 - m)) with qg = 2/3 is
    # (1/2 * 1/3) / (2/3 * 1/2) = 1/2; across: (1/2 * 1/6) / (5/6 * 1/2) = 1/5.
    params = SpellParameters(
        OnOff(Exponential(3.0), Exponential(1.0)),
        OnOff(Exponential(4.0), Exponential(1.0)),
        OnOff(Exponential(5.0), Exponential(1.0)),
    )
    assert params.up_share == pytest.approx(1 / 2)
    assert params.correlation_within == pytest.approx(1 / 2)
    assert params.correlation_across == pytest.approx(1 / 5)


def test_generated_series_agree_with_the_formulae() -> None:
    hour_s = 3600.0
    params = SpellParameters(
        OnOff(one(3 * hour_s, 1.0), one(1 * hour_s, 1.0)),
        OnOff(one(8 * hour_s, 0.5), one(2 * hour_s, 0.5)),
        OnOff(one(10 * hour_s, 0.5), one(2 * hour_s, 0.5)),
    )
    horizon_s = 2000 * DAY_S
    drawn = generate_availability(np.random.default_rng(3), ["a", "a", "b", "b"], horizon_s, params)
    states = np.stack([on_grid(series, horizon_s) for series in drawn])
    assert states.mean() == pytest.approx(params.up_share, abs=0.01)
    correlation = np.asarray(np.corrcoef(states))
    assert (correlation[0, 1] + correlation[2, 3]) / 2 == pytest.approx(params.correlation_within, abs=0.03)
    assert correlation[:2, 2:].mean() == pytest.approx(params.correlation_across, abs=0.03)


@pytest.mark.parametrize(
    ("name", "mean"), [("pooled", 0.613), ("us-east-1", 0.376), ("us-east-2", 0.716), ("us-west-2", 0.860)]
)
def test_fitted_parameters_reproduce_the_recording(name: str, mean: float) -> None:
    params = load_fitted().availability[name]
    assert params.up_share == pytest.approx(mean, abs=0.001)
    # The recording's pairs: 0.25-0.59 inside a region, 0.03-0.27 across.
    assert 0.25 <= params.correlation_within <= 0.59
    assert 0.03 <= params.correlation_across <= 0.27
    horizon_s = 45 * DAY_S
    worlds = [
        generate_availability(np.random.default_rng(seed), ["a", "a", "a", "b", "b", "c"], horizon_s, params)
        for seed in range(60)
    ]
    share = np.mean([on_grid(series, horizon_s).mean() for world in worlds for series in world])
    assert share == pytest.approx(mean, abs=0.06)


def test_up_spells_are_heavy_tailed_as_recorded() -> None:
    params = load_fitted().availability["us-west-2"]
    drawn = [
        generate_availability(np.random.default_rng(k), ["a"] * 3, 45 * DAY_S, params) for k in range(20)
    ]
    ups = np.concatenate([up_s(series, 45 * DAY_S) for world in drawn for series in world])
    # Recorded in us-west-2: median 52 min, mean 348 min, 97 % under 38 h.
    assert ups.mean() > 3 * np.median(ups)
    assert np.median(ups) / 60 == pytest.approx(52, rel=0.5)
    assert ups.mean() / 60 == pytest.approx(348, rel=0.35)


def test_poisson_spells_are_memoryless() -> None:
    params = poisson_parameters(mean_up_s=40_000.0, mean_down_s=20_000.0)
    horizon_s = 1000 * DAY_S
    first, second = generate_availability(np.random.default_rng(1), ["a", "a"], horizon_s, params)
    ups = up_s(first, horizon_s)
    # An exponential's median is ln 2 of its mean, and its standard deviation equals it.
    assert ups.mean() == pytest.approx(40_000, rel=0.1)
    assert np.median(ups) == pytest.approx(40_000 * np.log(2), rel=0.1)
    assert ups.std() == pytest.approx(40_000, rel=0.15)
    states = np.corrcoef(on_grid(first, horizon_s), on_grid(second, horizon_s))
    assert abs(states[0, 1]) < 0.05


@pytest.mark.real
def test_it_is_stationary_from_time_zero() -> None:
    params = load_fitted().availability["us-east-2"]
    first = [
        generate_availability(np.random.default_rng(seed), ["a"], TICK_S, params)[0].values[0]
        for seed in range(4000)
    ]
    assert np.mean(first) == pytest.approx(params.up_share, abs=0.03)


def test_residual_of_a_mixture_has_the_renewal_mean() -> None:
    # The mean residual life of a renewal process is E[X^2] / (2 E[X]); for constants 1 (p 3/4) and 5 (p 1/4)
    # that is (3/4 + 25/4) / (2 * 2) = 7/4.
    mixture = LognormalMixture(
        (LognormalComponent(0.75, 0.0, 0.0), LognormalComponent(0.25, float(np.log(5.0)), 0.0))
    )
    rng = np.random.default_rng(0)
    assert mixture.mean_s == pytest.approx(2.0)
    assert np.mean([mixture.sample_residual(rng) for _ in range(20_000)]) == pytest.approx(1.75, abs=0.03)


def test_same_seed_same_series_and_zones_do_not_disturb_each_other() -> None:
    params = load_fitted().availability["pooled"]
    few = generate_availability(np.random.default_rng(5), ["a", "b"], 5 * DAY_S, params)
    many = generate_availability(np.random.default_rng(5), ["a", "b", "a", "b"], 5 * DAY_S, params)
    for left, right in zip(few, many, strict=False):
        np.testing.assert_array_equal(left.times_s, right.times_s)
        np.testing.assert_array_equal(left.values, right.values)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    horizon_s=st.integers(1, 3 * DAY_S),
    tick_s=st.integers(1, 4000),
    zones=st.integers(1, 4),
)
def test_series_are_changes_between_zero_and_one(seed: int, horizon_s: int, tick_s: int, zones: int) -> None:
    params = load_fitted().availability["pooled"]
    regions = ["a", "b", "a", "c"][:zones]
    drawn = generate_availability(np.random.default_rng(seed), regions, horizon_s, params, tick_s)
    assert len(drawn) == zones
    for up_down in drawn:
        assert up_down.times_s[0] == 0
        assert up_down.times_s[-1] < horizon_s
        assert (up_down.times_s % tick_s == 0).all()
        assert set(up_down.values) <= {0.0, 1.0}
        assert (np.diff(up_down.values) != 0).all()


def test_mistakes_are_named() -> None:
    params = poisson_parameters(10.0, 10.0)
    with pytest.raises(ValueError, match="must be positive: got 0 and 195"):
        generate_availability(np.random.default_rng(0), ["a"], 0, params)
    with pytest.raises(ValueError, match="weights >= 0 that sum to 1"):
        LognormalMixture((LognormalComponent(0.5, 0.0, 1.0),))
    with pytest.raises(ValueError, match="positive seconds: got -1"):
        poisson_parameters(-1.0, 5.0)
