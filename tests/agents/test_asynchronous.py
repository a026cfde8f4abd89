"""Aggregators: the next models worked by hand, and who takes part."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from spotweave.agents.federated.asynchronous.aggregator import (
    Aggregator,
    AsynDA,
    AsynMA,
    FedAsync,
    FedAvg,
    FedBuff,
    Update,
    UpdateError,
    UpdateId,
)
from spotweave.agents.federated.asynchronous.brokers import (
    FRACTION_BITS,
    LARGEST_VALUE,
    LARGEST_WEIGHT,
    Broker,
    HaleFed,
    Shard,
    confirm,
    decode,
    encode,
    recover,
    ring_sum,
    split,
    split_floats,
)
from spotweave.agents.federated.asynchronous.fed_suda import FedSuda, ShadowSelection, slow_participants
from spotweave.agents.federated.asynchronous.hp_asgd import HpAsgd, allowed, guarantee, largest_step

ZERO = np.zeros(2)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def send(
    aggregator: Aggregator[Any], participant: int, values: list[float], base: int = 0, samples: int = 1
) -> None:
    aggregator.receive(Update(participant, base, np.array(values), samples))


@pytest.mark.parametrize("aggregator", [AsynDA(ZERO, 2, rate=0.5), HaleFed(ZERO, 2, 3, rate=0.5)])
def test_differences_are_averaged_by_samples(aggregator: Aggregator[Any]) -> None:
    send(aggregator, 0, [4, 0], samples=3)
    assert aggregator.advance() is None
    send(aggregator, 1, [0, 8], samples=1)
    made = aggregator.advance()
    # Eq. 6.3: 0.5 x (3 x [4, 0] + 1 x [0, 8]) / 4
    assert aggregator.model.tolist() == [1.5, 1.0]
    assert made == (1, (UpdateId(0, 0), UpdateId(1, 0)), (0, 0), 2)


def test_a_difference_applies_to_the_current_model_and_a_model_replaces_it() -> None:
    by_difference, by_model = AsynDA(ZERO, 1), AsynMA(ZERO, 1)
    for aggregator in (by_difference, by_model):
        send(aggregator, 0, [1, 1])
        aggregator.advance()
        send(aggregator, 1, [0, 3], base=0)
        made = aggregator.advance()
        assert made is not None
        assert made.staleness == (1,)
    assert by_difference.model.tolist() == [1.0, 4.0]
    assert by_model.model.tolist() == [0.0, 3.0]


def test_fed_avg_draws_once_per_round_and_waits_for_all() -> None:
    aggregator = FedAvg(ZERO, 10, 4, generator())
    drawn = [invitation.participant for invitation in aggregator.invite(range(10))]
    assert len(set(drawn)) == 4
    for participant in drawn:
        assert aggregator.advance() is None
        assert aggregator.invite(range(10)) == []
        send(aggregator, participant, [2, 0])
    assert aggregator.advance() is not None
    assert aggregator.model.tolist() == [2.0, 0.0]
    assert {invitation.version for invitation in aggregator.invite(range(10))} == {1}


def test_fed_buff_weighs_by_one_over_the_root_of_one_plus_staleness() -> None:
    aggregator = FedBuff(ZERO, 2, rate=2.0)
    for version in range(4):
        for participant in (0, 1):
            send(aggregator, participant, [0, 0], base=version)
        aggregator.advance()
    assert aggregator.version == 4
    send(aggregator, 0, [4, 0], base=1)  # 3 versions old: s = 1 / sqrt(4)
    send(aggregator, 1, [0, 4], base=4)
    aggregator.advance()
    # 2 / 2 x (0.5 x [4, 0] + 1 x [0, 4])
    assert aggregator.model.tolist() == [2.0, 4.0]


def test_fed_async_mixes_by_its_polynomial() -> None:
    aggregator = FedAsync(ZERO, mixing=0.5, exponent=1.0)
    send(aggregator, 0, [4, 0])
    aggregator.advance()
    # t - tau = 1: 0.5 x 2**-1 = 0.25
    assert aggregator.model.tolist() == [1.0, 0.0]
    send(aggregator, 1, [7, 6], base=0)
    aggregator.advance()
    # t - tau = 2: 0.5 / 3 = 1/6 of [7, 6], 5/6 of [1, 0]
    assert aggregator.model.tolist() == pytest.approx([2.0, 1.0])


def test_hp_asgd_scales_by_share_over_frequency() -> None:
    aggregator = HpAsgd(ZERO, [1, 3], 2, 1.0, generator())
    # Nothing used yet: fre = (0 + 1) / (0 + 2), p = 1/4 and 3/4.
    assert [invitation.scale for invitation in aggregator.invite([0, 1])] == [0.5, 1.5]
    for _ in range(2):
        send(aggregator, 0, [2, 2])
        send(aggregator, 0, [0, 2])
        aggregator.advance()
    # Participant 0 was used 4 times: fre_0 = 5/6, fre_1 = 1/6.
    assert aggregator.scale(0) == pytest.approx(0.25 * 6 / 5)
    assert aggregator.scale(1) == pytest.approx(0.75 * 6)
    assert aggregator.model.tolist() == [-2.0, -4.0]


def test_the_scaled_gradients_are_unbiased_whoever_answers_more_often() -> None:
    # Liu 2022, below Algorithm 7's introduction: E mean of (p / fre) G is sum p_n grad f_n. Participant 0
    # answers nine times as often; its gradient is [1, 0], the other's [0, 1], both with p = 1/2.
    aggregator = HpAsgd(ZERO, [1, 1], 10, 1.0, generator())
    plain = AsynDA(ZERO, 10, "gradient")
    rounds = 400
    for k in range(rounds):
        for participant in [0] * 9 + [1]:
            gradient = np.eye(2)[participant]
            (invitation,) = aggregator.invite([participant])
            send(aggregator, participant, list(invitation.scale * gradient), base=k)
            send(plain, participant, list(gradient), base=k)
        aggregator.advance()
        plain.advance()
    assert (-aggregator.model / rounds).tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    assert (-plain.model / rounds).tolist() == pytest.approx([0.9, 0.1])


def test_hp_asgd_keeps_to_what_may_be_stored_or_computed_at_once() -> None:
    aggregator = HpAsgd(ZERO, [1] * 10, 2, 1.0, generator(), at_once=3)
    first = [invitation.participant for invitation in aggregator.invite(range(10))]
    assert len(first) == 3
    send(aggregator, first[0], [0, 0])
    # One stored and two computing are three already.
    assert aggregator.invite([first[0]]) == []
    send(aggregator, first[1], [0, 0])
    aggregator.advance()
    assert len(aggregator.invite(range(10))) == 2


def test_hp_asgd_leaves_out_what_is_too_stale() -> None:
    aggregator = HpAsgd(ZERO, [1, 1, 1], 1, 1.0, generator(), staleness_bound=1)
    for version in range(2):
        send(aggregator, 0, [0, 0], base=version)
        aggregator.advance()
    send(aggregator, 1, [5, 5], base=0)
    assert aggregator.advance() is None
    send(aggregator, 2, [1, 0], base=1)
    made = aggregator.advance()
    assert made is not None
    assert made.used == (UpdateId(2, 1),)
    assert aggregator.model.tolist() == [-1.0, 0.0]


def test_fed_suda_counts_everyone_once_per_episode() -> None:
    # 3 regular participants and 1 slow one: W = 2 gives W_rp = 2 x 3 / 4 = 1.5, rounded to 2, which
    # leaves no place for the slow one. W = 4 takes the 3 regular ones and the shadow.
    aggregator = FedSuda(ZERO, ShadowSelection(4, [3], 4, 5))
    send(aggregator, 3, [4, 4])
    fresh = []
    for version in range(3):
        for participant in range(3):
            send(aggregator, participant, [0, 4], base=version)
        made = aggregator.advance()
        assert made is not None
        assert {update.participant for update in made.used} == {0, 1, 2, 3}
        fresh.append(made.fresh)
    # The shadow is used three times but is new only once; each round adds ([0, 4] x 3 + [4, 4]) / 4.
    assert fresh == [4, 3, 3]
    assert aggregator.model.tolist() == [3.0, 12.0]


def test_fed_suda_waits_for_a_shadow_beyond_the_bound() -> None:
    aggregator = FedSuda(ZERO, ShadowSelection(2, [1], 2, 1))
    send(aggregator, 1, [0, 0])
    for version in range(3):
        send(aggregator, 0, [0, 0], base=version)
        made = aggregator.advance()
        # The shadow is based on version 0: used at staleness 0 and 1, but not 2.
        assert (made is None) == (version == 2)
    send(aggregator, 1, [8, 0], base=2)
    made = aggregator.advance()
    assert made is not None
    assert aggregator.model.tolist() == [4.0, 0.0]


def test_in_any_order_of_arrival_every_participant_attends_each_episode_once() -> None:
    order = generator()
    selection = ShadowSelection(20, range(16, 20), 10, 50)
    aggregator = FedSuda(ZERO, selection)
    used: Counter[int] = Counter()
    while selection.episode < 5:
        # The slow ones answer seldom; a regular one may answer again before it is used.
        participant = int(order.choice(20, p=[0.06] * 16 + [0.01] * 4))
        if aggregator.invite([participant]):
            send(aggregator, participant, [0, 0], base=aggregator.version)
        before = selection.episode
        if (made := aggregator.advance()) is not None:
            used.update(update.participant for update in made.used)
            if selection.episode > before:
                assert set(used.values()) == {selection.episode}
                assert len(used) == 20


def test_slow_participants_by_the_heterogeneity_factor() -> None:
    # Speeds relative to the slowest, 100: 100, 2, 1, 1.
    assert slow_participants([1, 50, 100, 100], 2) == {1, 2, 3}
    assert slow_participants([1, 50, 100, 100], 1) == {2, 3}


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (Update(0, 0, np.zeros(3)), r"shape \(3,\): expected \(2,\)"),
        (Update(0, 0, np.array([np.nan, 0])), "NaN or infinity"),
        (Update(0, 0, ZERO, samples=0), "0 samples"),
        (Update(0, 1, ZERO), "based on model 1"),
        (Update(0, -1, ZERO), "based on model -1"),
    ],
)
def test_an_update_that_would_spoil_the_model_is_refused(update: Update, message: str) -> None:
    aggregator = AsynDA(ZERO, 1)
    with pytest.raises(UpdateError, match=message):
        aggregator.receive(update)
    assert aggregator.advance() is None


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


@settings(max_examples=60)
@given(vectors, st.integers(2, 7))
def test_the_shards_of_an_update_sum_to_it_exactly(update: np.ndarray, brokers: int) -> None:
    shards = split(update, brokers)
    assert len(shards) == brokers
    assert all(shard.dtype == np.uint64 and shard.shape == update.shape for shard in shards)
    expected = np.rint(update.astype(np.float64) * 2.0**FRACTION_BITS) / 2.0**FRACTION_BITS
    assert np.array_equal(decode(ring_sum(shards)), expected)


@settings(max_examples=40)
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
        (lambda: AsynDA(ZERO, 0), "updates per round is 0"),
        (lambda: AsynDA(ZERO, 1, rate=0), "rate is 0"),
        (lambda: HaleFed(ZERO, 1, brokers=1), "brokers is 1"),
        (lambda: ShadowSelection(4, [3], 4, -1), "T is -1"),
        (lambda: ShadowSelection(4, [4], 4, 1), "numbers below 4"),
        (lambda: ShadowSelection(4, [3], 2, 5), "leave no place"),
        (lambda: slow_participants([1, 2], 0.5), r"L is 0\.5"),
        (lambda: HpAsgd(ZERO, [1, 1], 2, 1.0, generator(), at_once=1), "P is 1"),
        (lambda: FedAsync(ZERO, mixing=1.5), r"alpha is 1\.5"),
        (lambda: FedAvg(ZERO, 3, 4, generator()), "at most 3"),
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
