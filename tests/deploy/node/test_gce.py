"""Compute Engine's metadata server as a node asks it."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from deploy.emulator.gcp.metadata import GceMetadataServer
from deploy.node.metadata import ROOT, VARIABLES, GceMetadata, MetadataError, service, url_of
from deploy.providers.local.records import Fate
from tests.deploy.node.agents import loopback_address


@pytest.fixture
def fates() -> list[Fate]:
    return [Fate()]


@pytest.fixture
def url(fates: list[Fate], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    address = loopback_address()
    metadata = {"name": "sw-1", "network-interfaces/0/ip": address}
    server = GceMetadataServer({"address": address, "metadata": metadata}, lambda: fates[-1])
    server.start()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield url_of("gce")
    server.shutdown()
    server.server_close()


def test_a_preemption_is_thirty_seconds_from_when_it_is_first_seen(url: str, fates: list[Fate]) -> None:
    metadata = service("gce", url)
    assert isinstance(metadata, GceMetadata)
    assert metadata.instance_id() == "sw-1"
    assert metadata.address() == url.removeprefix("http://").partition(":")[0]
    assert metadata.interruption_s() is None
    assert not metadata.rebalance()
    now_s = time.time()
    fates.append(Fate(notice_s=now_s, kill_s=now_s + 30))
    ends_s = metadata.interruption_s()
    assert ends_s is not None
    assert now_s + 30 <= ends_s <= time.time() + 30
    # The watcher tells of a notice once: it must stay the same.
    assert metadata.interruption_s() == ends_s


def test_host_maintenance_that_ends_the_instance_is_advice_to_leave(url: str, fates: list[Fate]) -> None:
    metadata = service("gce", url)
    assert not metadata.rebalance()
    fates.append(Fate(rebalance_s=time.time()))
    assert metadata.rebalance()
    assert metadata.interruption_s() is None


def test_whoever_does_not_say_what_he_asks_gets_nothing(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{url}{ROOT}name", timeout=5)


def test_a_server_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES["gce"], "127.0.0.1:1")
    with pytest.raises(MetadataError, match="does not answer"):
        GceMetadata(url_of("gce")).instance_id()
