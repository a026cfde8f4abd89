"""The generator of synthetic availability against its own formulae and against the recording."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from envs.simulation.availability import (
    Exponential,
    LognormalComponent,
    LognormalMixture,
    OnOff,
    SpellParameters,
    generate_availability,
    poisson_parameters,
)
from envs.simulation.series import StepSeries
from envs.traces.bundle import load_fitted

DAY_S = 86_400
TICK_S = 195


def on_grid(series: StepSeries, horizon_s: int) -> NDArray[np.bool_]:
    grid_s = np.arange(0, horizon_s, TICK_S)
    return series.values[np.searchsorted(series.times_s, grid_s, side="right") - 1] > 0.5


def spells_s(series: StepSeries, horizon_s: int, on: bool) -> NDArray[np.int64]:
    """Complete spells only."""
    lengths = np.diff(np.append(series.times_s, horizon_s))
    return np.asarray(lengths[1:-1][(series.values[1:-1] > 0.5) == on])


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
        spells_s(series, 45 * DAY_S, on=True)
        for seed in range(20)
        for series in generate_availability(np.random.default_rng(seed), ["a"] * 3, 45 * DAY_S, params)
    ]
    ups = np.concatenate(drawn)
    # Recorded in us-west-2: median 52 min, mean 348 min, 97 % under 38 h.
    assert ups.mean() > 3 * np.median(ups)
    assert np.median(ups) / 60 == pytest.approx(52, rel=0.5)
    assert ups.mean() / 60 == pytest.approx(348, rel=0.35)


def test_poisson_spells_are_memoryless() -> None:
    params = poisson_parameters(mean_up_s=40_000.0, mean_down_s=20_000.0)
    horizon_s = 1000 * DAY_S
    first, second = generate_availability(np.random.default_rng(1), ["a", "a"], horizon_s, params)
    ups = spells_s(first, horizon_s, on=True)
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


@settings(deadline=None, max_examples=40)
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
    for series in drawn:
        assert series.times_s[0] == 0
        assert series.times_s[-1] < horizon_s
        assert (series.times_s % tick_s == 0).all()
        assert set(series.values) <= {0.0, 1.0}
        assert (np.diff(series.values) != 0).all()


def test_mistakes_are_named() -> None:
    params = poisson_parameters(10.0, 10.0)
    with pytest.raises(ValueError, match="must be positive: got 0 and 195"):
        generate_availability(np.random.default_rng(0), ["a"], 0, params)
    with pytest.raises(ValueError, match="weights >= 0 that sum to 1"):
        LognormalMixture((LognormalComponent(0.5, 0.0, 1.0),))
    with pytest.raises(ValueError, match="positive seconds: got -1"):
        poisson_parameters(-1.0, 5.0)
