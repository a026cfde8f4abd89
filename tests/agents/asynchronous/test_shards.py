"""Shards: they sum to the update exactly, and one of them says nothing about it (Liu 2022, Eq. 6.1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from agents.federated.asynchronous.shards import (
    FRACTION_BITS,
    LARGEST_VALUE,
    LARGEST_WEIGHT,
    decode,
    encode,
    recover,
    ring_sum,
    split,
    split_floats,
)
from agents.federated.asynchronous.updates import UpdateError

floats = st.floats(-LARGEST_VALUE, LARGEST_VALUE, width=32)
vectors = st.integers(1, 40).flatmap(
    lambda d: st.sampled_from([np.float32, np.float64]).flatmap(
        lambda dtype: arrays(dtype, d, elements=floats)
    )
)


@settings(max_examples=60, deadline=None)
@given(vectors, st.integers(2, 7))
def test_the_shards_of_an_update_sum_to_it_exactly(update: np.ndarray, brokers: int) -> None:
    shards = split(update, brokers)
    assert len(shards) == brokers
    assert all(shard.dtype == np.uint64 and shard.shape == update.shape for shard in shards)
    expected = np.rint(update.astype(np.float64) * 2.0**FRACTION_BITS) / 2.0**FRACTION_BITS
    assert np.array_equal(decode(ring_sum(shards)), expected)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(arrays(np.float32, 5, elements=floats), st.integers(1, 5000)), min_size=1, max_size=6),
    st.integers(2, 4),
)
def test_the_brokers_components_give_the_weighted_mean(
    updates: list[tuple[np.ndarray, int]], brokers: int
) -> None:
    shards = [split(values, brokers) for values, _ in updates]
    weights = [samples for _, samples in updates]
    components = {broker: ring_sum([parts[broker] for parts in shards], weights) for broker in range(brokers)}
    expected = sum(np.float64(samples) * decode(encode(values)) for values, samples in updates) / sum(weights)
    assert np.allclose(recover(components, brokers, sum(weights)), expected, rtol=0, atol=1e-9)


def test_the_largest_values_with_the_largest_weight_do_not_overflow() -> None:
    update = np.array([LARGEST_VALUE, -LARGEST_VALUE])
    shards = split(update, 2)
    parts = {broker: ring_sum([shards[broker]], [LARGEST_WEIGHT]) for broker in range(2)}
    assert recover(parts, 2, LARGEST_WEIGHT).tolist() == update.tolist()


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_any_single_shard_is_uniform_whatever_the_update(shard: int) -> None:
    # An update of equal values, the most telling one. 20,000 numbers: a fault of 2 % in their distribution
    # has a p-value far below 1e-6.
    values = split(np.full(20_000, 0.5), 3)[shard]
    assert kstest(values / 2.0**64, "uniform").pvalue > 1e-6
    # Each of the 64 bits is set in about half of the numbers: 5 standard deviations are 0.018.
    bits = np.unpackbits(values.view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.018


def test_the_same_update_is_never_split_alike() -> None:
    first, again = (split(np.ones(4), 2)[0] for _ in range(2))
    assert not np.array_equal(first, again)


@pytest.mark.parametrize("mask", ["positional", "distributional"])
@pytest.mark.parametrize("brokers", [2, 3, 5])
def test_float_shards_sum_to_the_update_up_to_rounding(mask: str, brokers: int) -> None:
    generator = np.random.default_rng(1)
    update = generator.standard_normal(200)
    shards = split_floats(update, brokers, generator, mask)  # type: ignore[arg-type]
    assert len(shards) == brokers
    assert np.allclose(sum(shards), update, rtol=0, atol=1e-12)
    # No shard is the update, nor close to it.
    assert all(np.abs(shard - update).max() > 0.1 for shard in shards)


@pytest.mark.parametrize("brokers", [1, 0, -1])
def test_fewer_than_two_brokers_are_refused(brokers: int) -> None:
    with pytest.raises(UpdateError, match="expected at least 2"):
        split(np.ones(2), brokers)
    with pytest.raises(UpdateError, match="expected at least 2"):
        split_floats(np.ones(2), brokers, np.random.default_rng(0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, LARGEST_VALUE * 1.01])
def test_what_cannot_be_encoded_is_refused(value: float) -> None:
    with pytest.raises(UpdateError, match="shards hold numbers within it"):
        split(np.array([0.0, value]), 2)


def test_a_component_that_is_missing_or_too_heavy_is_refused() -> None:
    part = encode(np.ones(2))
    with pytest.raises(UpdateError, match="expected one of each of 0 to 1"):
        recover({0: part}, 2, 1)
    with pytest.raises(UpdateError, match="different shapes"):
        recover({0: part, 1: part[:1]}, 2, 1)
    with pytest.raises(UpdateError, match="sum at most"):
        ring_sum([part, part], [LARGEST_WEIGHT, 1])
    with pytest.raises(UpdateError, match="at least one shard"):
        ring_sum([])
