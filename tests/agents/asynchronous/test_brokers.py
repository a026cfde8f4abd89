"""Brokers: what they refuse, confirm, add up and forget (Liu 2022, Algorithm 5)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents.federated.asynchronous.brokers import Broker, confirm
from agents.federated.asynchronous.shards import Shard, recover, split
from agents.federated.asynchronous.updates import UpdateError, UpdateId

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


def test_a_negative_staleness_bound_and_an_older_model_are_refused() -> None:
    with pytest.raises(UpdateError, match="T = -1"):
        Broker(0, SIZE, -1)
    with pytest.raises(UpdateError, match="expected a newer one"):
        a_broker(version=3).settle(2, [])
