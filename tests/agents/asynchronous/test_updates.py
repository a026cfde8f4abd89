"""Brokers, shards and step sizes of asynchronous training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from agents.federated.asynchronous.aggregator import UpdateError, UpdateId
from agents.federated.asynchronous.brokers import Broker, confirm
from agents.federated.asynchronous.hp_asgd import allowed, guarantee, largest_step
from agents.federated.asynchronous.shards import (
    FRACTION_BITS,
    LARGEST_VALUE,
    LARGEST_WEIGHT,
    Shard,
    decode,
    encode,
    recover,
    ring_sum,
    split,
    split_floats,
)

# Brokers: what they refuse, confirm, add up and forget (Liu 2022, Algorithm 5).

SIZE = 3


def shard(participant: int = 4, base_version: int = 0, broker: int = 0, samples: int = 1) -> Shard:
    return Shard(participant, base_version, broker, np.arange(SIZE, dtype=np.uint64), samples)


def a_broker(bound: int = 2, version: int = 0) -> Broker:
    broker = Broker(0, SIZE, bound)
    broker.settle(version, [])
    return broker


def test_two_brokers_give_the_weighted_mean_of_what_was_sent() -> None:
    brokers = [Broker(number, SIZE, 2) for number in range(2)]
    updates = {7: (np.array([1.0, 2.0, -4.0]), 1), 9: (np.array([5.0, 0.0, 0.0]), 3)}
    for participant, (values, samples) in updates.items():
        for broker, part in zip(brokers, split(values, 2), strict=True):
            broker.receive(Shard(participant, 0, broker.number, part, samples), sender=participant)
    confirmed = confirm(brokers[0].held, {b.number: b.held for b in brokers}, 2).confirmed
    assert confirmed == [UpdateId(7, 0), UpdateId(9, 0)]
    components = [broker.component(confirmed) for broker in brokers]
    assert [component.samples for component in components] == [4, 4]
    # (1 x [1, 2, -4] + 3 x [5, 0, 0]) / 4
    mean = recover({b: component.values for b, component in enumerate(components)}, 2, 4)
    assert mean.tolist() == [4.0, 0.5, -1.0]


@pytest.mark.parametrize(
    ("wrong", "sender", "message"),
    [
        (shard(), 5, "was sent by participant 5"),
        (shard(broker=1), 4, "not for broker 0"),
        (dataclasses.replace(shard(), values=np.zeros(SIZE + 1, np.uint64)), 4, r"expected uint64 \(3,\)"),
        (dataclasses.replace(shard(), values=np.zeros(SIZE)), 4, "expected uint64"),  # type: ignore[arg-type]
        (shard(samples=0), 4, "at least 1"),
        (shard(base_version=4), 4, "does not exist"),
        (shard(base_version=-1), 4, "does not exist"),
        (shard(base_version=0), 4, "3 versions old: expected at most T = 2"),
    ],
)
def test_a_forged_or_decayed_shard_is_refused(wrong: Shard, sender: int, message: str) -> None:
    broker = a_broker(bound=2, version=3)
    with pytest.raises(UpdateError, match=message):
        broker.receive(wrong, sender)
    assert broker.held == []


def test_a_replayed_shard_is_refused_while_held_when_used_and_when_decayed() -> None:
    broker = a_broker(bound=2)
    broker.receive(shard(), 4)
    with pytest.raises(UpdateError, match="received before"):
        broker.receive(shard(), 4)
    broker.settle(1, [UpdateId(4, 0)])
    with pytest.raises(UpdateError, match="received before"):
        broker.receive(shard(), 4)
    broker.settle(3, [])
    with pytest.raises(UpdateError, match="versions old"):
        broker.receive(shard(), 4)


def test_what_is_used_or_decayed_is_forgotten_and_a_shadow_stays() -> None:
    broker = a_broker(bound=1)
    for participant in (1, 2, 3):
        broker.receive(shard(participant), participant)
    assert broker.settle(1, [UpdateId(2, 0)]) == []
    assert broker.held == [UpdateId(1, 0), UpdateId(3, 0)]
    # At version 2 they are two versions old, beyond T = 1.
    assert broker.settle(2, []) == [UpdateId(1, 0), UpdateId(3, 0)]
    assert broker.held == []


def test_an_incomplete_update_is_discarded_and_its_late_shard_refused() -> None:
    brokers = [Broker(number, SIZE, 2) for number in range(2)]
    for participant in (1, 2):
        brokers[0].receive(shard(participant), participant)
    brokers[1].receive(shard(2, broker=1), 2)
    found = confirm(brokers[0].held, {b.number: b.held for b in brokers}, 2)
    assert found == ([UpdateId(2, 0)], [UpdateId(1, 0)])
    for broker in brokers:
        broker.discard(found.incomplete)
    assert brokers[0].held == [UpdateId(2, 0)]
    with pytest.raises(UpdateError, match="received before"):
        brokers[1].receive(shard(1, broker=1), 1)


def test_a_list_needs_every_broker_and_each_update_once() -> None:
    with pytest.raises(UpdateError, match="expected all of 0 to 1"):
        confirm([UpdateId(1, 0)], {0: [UpdateId(1, 0)]}, 2)
    broker = a_broker()
    broker.receive(shard(1), 1)
    with pytest.raises(UpdateError, match="twice"):
        broker.component([UpdateId(1, 0), UpdateId(1, 0)])
    with pytest.raises(UpdateError, match="confirm the list again"):
        broker.component([UpdateId(2, 0)])


# Shards: they sum to the update exactly, and one of them says nothing about it (Liu 2022, Eq. 6.1).

floats = st.floats(-LARGEST_VALUE, LARGEST_VALUE, width=32)
vectors = st.sampled_from([np.float32, np.float64]).flatmap(
    lambda dtype: arrays(dtype, st.integers(1, 40), elements=floats)
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


PART, RNG = encode(np.ones(2)), np.random.default_rng(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[(partial(split, np.ones(2), few), "expected at least 2") for few in (1, 0, -1)],
        *[(partial(split_floats, np.ones(2), few, RNG), "expected at least 2") for few in (1, 0, -1)],
        *[
            (partial(split, np.array([0.0, value]), 2), "shards hold numbers within it")
            for value in (np.nan, np.inf, -np.inf, LARGEST_VALUE * 1.01)
        ],
        (lambda: recover({0: PART}, 2, 1), "expected one of each of 0 to 1"),
        (lambda: recover({0: PART, 1: PART[:1]}, 2, 1), "different shapes"),
        (lambda: ring_sum([PART, PART], [LARGEST_WEIGHT, 1]), "sum at most"),
        (lambda: ring_sum([]), "at least one shard"),
        (lambda: Broker(0, SIZE, -1), "T = -1"),
        (lambda: a_broker(version=3).settle(2, []), "expected a newer one"),
        (lambda: largest_step(1.0, -1), "T is -1"),
        (lambda: largest_step(0.0, 1), "L is 0"),
        (lambda: allowed([0.1, 0.0], 1.0, 1), "smallest step is 0"),
    ],
)
def test_what_is_out_of_range_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UpdateError, match=message):
        make()


# Theorem 7.0.1 and its corollary: the values worked by hand.


def test_the_largest_step_is_the_root_of_the_condition() -> None:
    # T = 0: gamma L = 1. T = 1, L = 2: 2 gamma + 8 gamma^2 = 1, gamma = (-2 + sqrt(4 + 32)) / 16 = 1/4.
    assert largest_step(2.0, 0) == pytest.approx(0.5)
    assert largest_step(2.0, 1) == pytest.approx(0.25)


@given(st.floats(0.01, 100), st.integers(0, 60))
def test_a_little_more_than_the_largest_step_is_too_much(lipschitz: float, bound: int) -> None:
    step = largest_step(lipschitz, bound)
    rounds = bound + 2
    assert allowed([step] * rounds, lipschitz, bound)
    assert not allowed([step * 1.001] * rounds, lipschitz, bound)


def test_steps_that_shrink_are_allowed_where_a_constant_one_is_not() -> None:
    # L = 1, T = 1: 0.6 + 2 x 0.6 x 0.3 = 0.96, but 0.6 + 2 x 0.6 x 0.6 = 1.32.
    assert allowed([0.6, 0.3, 0.3], 1.0, 1)
    assert not allowed([0.6, 0.6, 0.3], 1.0, 1)


def test_the_corollarys_range_and_bound() -> None:
    # gap = 4, L = 1, variance = 4, T = 0: K >= 4 x 1 x 4 x 1 / 4 = 4. With K = 100:
    # gamma <= sqrt(4 / (1 x 100 x 4)) = 0.1, from 0.05 for C = 2;
    # bound = (4 x 2 + 1) x 4 / 2 x sqrt(4 x 4 x 1 / 100) = 18 x 0.4 = 7.2.
    found = guarantee(
        lipschitz=1, staleness_bound=0, gap=4, variance=4, rounds=100, round_updates=2, spread=2
    )
    assert found == pytest.approx((0.05, 0.1, 7.2))
    with pytest.raises(UpdateError, match="at least 4"):
        guarantee(lipschitz=1, staleness_bound=0, gap=4, variance=4, rounds=3, round_updates=2)


@given(st.floats(0.1, 10), st.integers(0, 20), st.floats(0.1, 10), st.floats(0.1, 10))
def test_the_corollarys_steps_satisfy_the_theorem(
    lipschitz: float, bound: int, gap: float, variance: float
) -> None:
    rounds = int(4 * lipschitz * gap * (bound + 1) ** 2 / variance) + 1
    found = guarantee(
        lipschitz=lipschitz, staleness_bound=bound, gap=gap, variance=variance, rounds=rounds, round_updates=5
    )
    assert found.largest_step <= largest_step(lipschitz, bound)
