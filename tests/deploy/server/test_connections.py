"""Whose connection goes when there are too many."""

from __future__ import annotations

import pytest

from deploy.server.connections import ConnectionLimits, Connections, Guest, Waits, network_of
from deploy.server.middleware import Metrics


class House:
    """Connections that note who was sent away."""

    def __init__(self, most: int, most_each: int) -> None:
        self.metrics = Metrics()
        self.all = Connections(ConnectionLimits(most=most, most_each=most_each), self.metrics)
        self.gone: list[str] = []

    def enter(self, name: str, waits: Waits = Waits.REQUEST) -> Guest | None:
        guest = self.all.enter(name.partition("#")[0])
        if guest is not None:
            guest.drop = lambda: self.gone.append(name)
            self.all.now_waits(guest, waits)
        return guest

    @property
    def open(self) -> float | None:
        return self.metrics.registry.get_sample_value("spotweave_http_connections")


GREEDY = ["10.0.0.1", "10.0.0.2#1", "10.0.0.2#2", "10.0.0.2#3"]


@pytest.mark.parametrize(
    ("most", "most_each", "names", "gone"),
    [
        pytest.param(4, 3, [*GREEDY, "10.0.0.3"], ["10.0.0.2#1"], id="in a full house the greediest's"),
        pytest.param(100, 2, GREEDY, ["10.0.0.2#1"], id="an address at its limit makes room itself"),
        pytest.param(
            *(100, 5, [f"2001:db8::{host:x}" for host in range(20)]),
            [f"2001:db8::{host:x}" for host in range(15)],
            id="a network of IPv6 shares a limit",
        ),
    ],
)
def test_who_goes_for_who_comes(most: int, most_each: int, names: list[str], gone: list[str]) -> None:
    house = House(most, most_each)
    assert None not in [house.enter(name) for name in names]
    assert house.gone == gone
    assert house.open == len(names) - len(gone)


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
    house.all.leave(newest)
    assert house.open == 2, "an end that is told twice counts once"
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
