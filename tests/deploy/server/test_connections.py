"""Whose connection goes when there are too many."""

from __future__ import annotations

from collections import Counter

import pytest

from deploy.server.connections import ConnectionLimits, Connections, Guest, Waits, network_of
from deploy.server.metrics import Metrics


class House:
    """Connections that note who was sent away."""

    def __init__(self, most: int, most_each: int) -> None:
        self.metrics = Metrics()
        self.all = Connections(ConnectionLimits(most=most, most_each=most_each), self.metrics)
        self.names: dict[Guest, str] = {}
        self.gone: list[str] = []

    def enter(self, name: str, waits: Waits = Waits.REQUEST) -> Guest | None:
        guest = self.all.enter(name.partition("#")[0])
        if guest is not None:
            self.names[guest] = name
            guest.drop = lambda: self.gone.append(name)
            self.all.now_waits(guest, waits)
        return guest

    @property
    def open(self) -> float | None:
        return self.metrics.registry.get_sample_value("spotweave_http_connections")


def test_a_full_house_sends_the_oldest_idle_connection_of_the_greediest_away() -> None:
    house = House(most=4, most_each=3)
    for name in ("10.0.0.1", "10.0.0.2#1", "10.0.0.2#2", "10.0.0.2#3", "10.0.0.3"):
        assert house.enter(name) is not None
    assert house.gone == ["10.0.0.2#1"]
    assert house.open == 4


def test_an_address_at_its_limit_makes_room_itself() -> None:
    house = House(most=100, most_each=2)
    for name in ("10.0.0.1", "10.0.0.2#1", "10.0.0.2#2", "10.0.0.2#3"):
        assert house.enter(name) is not None
    assert house.gone == ["10.0.0.2#1"]


def test_who_is_being_answered_stays_and_bodies_go_after_the_idle() -> None:
    house = House(most=3, most_each=3)
    house.enter("10.0.0.1#answered", Waits.ANSWER)
    house.enter("10.0.0.1#body", Waits.BODY)
    house.enter("10.0.0.1#idle")
    house.enter("10.0.0.1#2", Waits.ANSWER)
    newest = house.enter("10.0.0.1#3", Waits.ANSWER)
    assert newest is not None
    assert house.gone == ["10.0.0.1#idle", "10.0.0.1#body"]
    assert house.enter("10.0.0.1#4") is None
    assert house.enter("10.0.0.9") is None, "all are being answered"
    house.all.leave(newest)
    assert house.enter("10.0.0.9") is not None


def test_who_waits_for_a_next_request_is_idle_from_then_on() -> None:
    house = House(most=2, most_each=2)
    first = house.enter("10.0.0.1#1")
    house.enter("10.0.0.1#2")
    assert first is not None
    house.all.now_waits(first, Waits.ANSWER)
    house.all.now_waits(first, Waits.REQUEST)
    house.enter("10.0.0.1#3")
    assert house.gone == ["10.0.0.1#2"]


def test_an_end_that_is_told_twice_counts_once() -> None:
    house = House(most=2, most_each=2)
    guests = [house.enter(f"10.0.0.{host}") for host in range(3)]
    for guest in guests:
        assert guest is not None
        house.all.leave(guest)
        house.all.leave(guest)
    assert house.open == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ],
)
def test_whoever_has_a_network_of_ipv6_is_one(address: str, network: str) -> None:
    assert network_of(address) == network


def test_ipv6_addresses_of_one_network_share_a_limit() -> None:
    house = House(most=100, most_each=5)
    for host in range(20):
        house.enter(f"2001:db8::{host:x}")
    assert Counter(house.gone).total() == 15
