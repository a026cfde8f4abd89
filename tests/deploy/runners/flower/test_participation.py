"""What the dashboard tells of a client of an asynchronous training."""

from __future__ import annotations

from deploy.fl.brokers.messages import Standing
from deploy.fl.checkpoints import Participation, Status
from deploy.model.jobs import Flower, FlowerClient
from deploy.model.strategies import FedAsync, HaleFed
from deploy.runners.flower.reporting import asynchronous_details

CLIENTS = (FlowerClient(name="a", samples=3), FlowerClient(name="b", samples=1))


def test_without_brokers_the_server_says_how_often_each_was_used() -> None:
    """9 of 12 used updates are a's: it has three quarters of the samples, and counts for as much."""
    work = Flower(app="x", rounds=9, clients=CLIENTS, strategy=FedAsync(kind="fed_async"))
    status = Status(run=1, clients={"a": Participation(version=11)}, used=[9, 3])
    assert asynchronous_details(work, status, [], "a") == {"weight": "0.75", "version": "11", "share": "0.75"}
    assert asynchronous_details(work, status, [], "b") == {"weight": "0.25", "share": "0.25"}
    assert asynchronous_details(work, None, [], "b") == {"weight": "0.25"}


def test_with_brokers_these_do() -> None:
    strategy = HaleFed(kind="hale_fed", updates_per_round=2)
    work = Flower(app="x", rounds=9, clients=CLIENTS, strategy=strategy)
    standing = [Standing(used=1, staleness=None, slow=False), Standing(used=7, staleness=4, slow=True)]
    assert asynchronous_details(work, None, standing, "a") == {"weight": "0.75", "share": "0.125"}
    assert asynchronous_details(work, None, standing, "b") == {
        "weight": "0.25",
        "share": "0.875",
        "staleness": "4",
        "shadow": "yes",
    }
