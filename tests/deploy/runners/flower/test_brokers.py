"""Broker processes as the runner starts, finds and ends them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.federated.asynchronous.aggregator import UpdateError
from deploy.fl.brokers import messages
from deploy.fl.brokers.messages import Places
from deploy.model.jobs import Flower, FlowerClient
from deploy.model.strategies import HaleFed
from deploy.node import procfs
from deploy.runners.detached import Limits
from deploy.runners.flower import brokers as under_test
from deploy.runners.flower.brokers import Brokers, end_brokers, free_ports

pytestmark = pytest.mark.real

WORK = Flower(
    app="x",
    rounds=3,
    clients=(FlowerClient(name="a"), FlowerClient(name="b", samples=2)),
    strategy=HaleFed(kind="hale_fed", updates_per_round=2),
)
PATIENCE_S = 90.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_brokers(tmp_path)


def of_job(folder: Path, ports: list[int]) -> Brokers:
    (folder / "keys").mkdir(exist_ok=True)
    return Brokers(folder, folder / "keys", "127.0.0.1", ports, WORK, Limits())


def answering(brokers: Brokers, silent_s: float = PATIENCE_S) -> Brokers:
    """Once they have said how clients stand, which they can when they know the model."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        brokers.keep_running()
        brokers.look(silent_s)
        if brokers.standing and not brokers.problem:
            return brokers
        if not brokers.problem:
            # They are there and know of no model: that is no silence.
            for place in brokers.places(messages.SERVER):
                place.post("/v1/model", {"version": 0, "size": 2})
        assert time.monotonic() < until_s, brokers.problem
        time.sleep(0.1)


def pids(folder: Path) -> list[int]:
    """Of the brokers themselves, by number."""
    found = {}
    for process in procfs.scan():
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0") if process.alive else []
        for number in range(2):
            if b"deploy.fl.brokers" in words and f"{folder}/brokers/{number}/".encode() in words[-2]:
                found[number] = process.pid
    return [found[number] for number in sorted(found)]


def test_brokers_that_are_killed_or_hang_come_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_LOOK_S", 0.5)
    monkeypatch.setattr(under_test, "_RESTART_S", 0.5)
    ports = free_ports("127.0.0.1", 2, but=0)
    answering(of_job(folder, ports))
    first = pids(folder)
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    os.kill(first[1], signal.SIGSTOP)
    # Another scheduler goes on, with the same ports, certificates and tokens.
    later = of_job(folder, ports)
    assert later.places(messages.SERVER) == of_job(folder, ports).places(messages.SERVER)
    answering(later, silent_s=2.0)
    assert not set(first) & set(pids(folder))
    assert [one.used for one in later.standing] == [0, 0]
    end_brokers(folder)
    assert not pids(folder)


def test_a_client_is_given_its_own_tokens_only(folder: Path) -> None:
    brokers = answering(of_job(folder, free_ports("127.0.0.1", 2, but=0)))
    given = {name: Places.model_validate_json(brokers.places_file(name)).brokers for name in ("a", "b")}
    tokens = [place.token for who in (*given.values(), brokers.places(messages.SERVER)) for place in who]
    assert len(set(tokens)) == 6
    shard = bytes(16)
    given["a"][0].ask("PUT", "/v1/shards/0/1", shard)
    with pytest.raises(UpdateError, match="expected a token of this broker"):
        given["a"][0].model_copy(update={"token": given["b"][1].token}).ask("PUT", "/v1/shards/0/2", shard)
    with pytest.raises(UpdateError, match="client-1 may not do that"):
        given["b"][1].post("/v1/held")
