"""Real brokers on this machine: what they add up, what they refuse, and what they know after a restart."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from spotweave.agents.federated.asynchronous.aggregator import UpdateError, UpdateId
from spotweave.agents.federated.asynchronous.brokers import encode, ring_sum, split
from spotweave.deploy.fl import broker as broker_messages
from spotweave.deploy.fl.asynchronous import BrokeredUpdates
from spotweave.deploy.fl.broker import BrokerError, Place, Places, UnwantedError
from spotweave.deploy.fl.broker_server import BrokerServer
from spotweave.deploy.fl.checkpoints import Checkpoint
from spotweave.deploy.fl.updates import send_shards
from spotweave.deploy.model.jobs import Flower, FlowerClient
from spotweave.deploy.model.strategies import FedSuda, HaleFed
from spotweave.deploy.runners.detached import Limits
from spotweave.deploy.runners.flower.brokers import Brokers as JobBrokers
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.runners.flower.superlink import free_ports
from tests.deploy.fl.fake_grid import (
    FakeGrid,
    client_app,
    context,
    setup,
    status_of,
    train,
    two_more_of_its_own,
)

HALE = HaleFed(kind="hale_fed", updates_per_round=2, staleness_most=5)
SUDA = FedSuda(kind="fed_suda", updates_per_round=3, slow_factor=2.0, staleness_most=2)
SAMPLES, EPOCHS_S = [3, 1, 1], [1.0, 1.0, 10.0]
CLIENTS = tuple(
    FlowerClient(name=name, samples=samples, epoch_s=epoch_s)
    for name, samples, epoch_s in zip("abc", SAMPLES, EPOCHS_S, strict=True)
)
Row = NDArray[np.float64]


class Brokers:
    """The brokers of one job, each in a thread; `restart` knows only what is on the disk."""

    def __init__(self, folder: Path, strategy: HaleFed | FedSuda, incomplete_s: float = 120.0) -> None:
        (folder / "keys").mkdir(parents=True)
        ports = free_ports("127.0.0.1", strategy.brokers)
        work = Flower(app="x", rounds=9, clients=CLIENTS, strategy=strategy)
        self._made = JobBrokers(JobFiles(folder), "127.0.0.1", ports, work, Limits())
        self._incomplete_s = incomplete_s
        self.places = self._made.places
        self.servers: list[BrokerServer] = []
        for number in range(strategy.brokers):
            self.start(number)

    def start(self, number: int) -> None:
        settings = self._made._settings(number).model_copy(update={"incomplete_s": self._incomplete_s})
        server = BrokerServer(settings)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.servers.insert(number, server)

    def kill(self, number: int) -> None:
        server = self.servers.pop(number)
        server.shutdown()
        server.server_close()

    def held(self) -> list[list[UpdateId]]:
        """Updates that each of them has."""
        return [one.broker.held().updates for one in self.servers]

    def close(self) -> None:
        while self.servers:
            self.kill(0)

    def send(self, client: int, version: int, values: Sequence[float]) -> None:
        shards = split(np.array(values), len(self.servers))
        send_shards(self.places(broker_messages.client(client)), version, shards, patience_s=0.0)

    def server(
        self, version: int = 0, model: Sequence[float] = (0.0, 0.0), rate: float = 1.0
    ) -> BrokeredUpdates:
        """The server's side with a model that it has in a checkpoint."""
        found = BrokeredUpdates(rate, self.places("server"), Checkpoint(version, {"w": np.array(model)}))
        found.step()
        return found


@pytest.fixture
def hale(tmp_path: Path) -> Iterator[Brokers]:
    with closing(Brokers(tmp_path, HALE)) as found:
        yield found


def model_of(updates: BrokeredUpdates) -> Row:
    step = updates.step()
    assert step is not None
    return step.model.astype(np.float64)


def test_the_server_gets_the_weighted_mean_and_no_more(hale: Brokers) -> None:
    """Samples 3 and 1: (3 * [1, -2] + 1 * [5, 2]) / 4 = [2, -1]; eta = 1/2 moves [10, 10] to [11, 9.5]."""
    server = hale.server(model=[10.0, 10.0], rate=0.5)
    hale.send(0, 0, [1.0, -2.0])
    assert server.step() is None
    hale.send(1, 0, [5.0, 2.0])
    step = server.step()
    assert step is not None
    np.testing.assert_allclose(step.model, [11.0, 9.5], atol=1e-9)
    assert step.metrics == {"updates": 2.0, "staleness_mean": 0.0, "staleness_most": 0.0}
    # No shard is the update, and together they are.
    parts = [list(server.broker._files.all(2)) for server in hale.servers]
    for shards in zip(*parts, strict=True):
        whole = ring_sum([shard.values for shard in shards])
        assert any((whole == encode(np.array(values))).all() for values in ([1.0, -2.0], [5.0, 2.0]))
        assert all((shard.values != whole).all() for shard in shards)


@pytest.mark.parametrize("dead", [[0], [1], [0, 1]])
@pytest.mark.parametrize("when", ["before the list", "after the list", "before the success message"])
def test_killed_brokers_lose_nothing_and_use_nothing_twice(hale: Brokers, dead: list[int], when: str) -> None:
    """[2, 4] make version 1, [6, 10] version 2; a broker that does not answer is waited for."""
    server = hale.server()

    def die() -> None:
        for number in sorted(dead, reverse=True):
            hale.kill(number)
        assert server.step() is None or when == "after the list"
        for number in dead:
            hale.start(number)

    for client, value in ((1, 2.0), (2, 4.0)):
        hale.send(client, 0, [value, 0.0])
    if when == "before the list":
        die()
    np.testing.assert_allclose(model_of(server), [3.0, 0.0], atol=1e-9)
    if when == "after the list":
        die()
        # The server died too, before its checkpoint: it asks for the same version again.
        server = hale.server()
        np.testing.assert_allclose(model_of(server), [3.0, 0.0], atol=1e-9)
    server.settle()
    if when == "before the success message":
        die()
    hale_version_1 = hale.server(1, [3.0, 0.0])
    assert hale_version_1.step() is None
    assert hale.held() == [[], []]
    for client, value in ((1, 6.0), (2, 10.0)):
        hale.send(client, 1, [value, 0.0])
    np.testing.assert_allclose(model_of(hale_version_1), [11.0, 0.0], atol=1e-9)


def test_an_update_of_which_a_shard_is_missing_is_given_up(tmp_path: Path) -> None:
    with closing(Brokers(tmp_path, HALE, incomplete_s=0.0)) as brokers:
        server = brokers.server()
        shard, _ = split(np.array([100.0, 100.0]), 2)
        # Its client died after the first of its two shards; the other way round for the next.
        brokers.places("client-0")[0].ask("PUT", "/v1/shards/0/1", shard.tobytes())
        brokers.places("client-0")[1].ask("PUT", "/v1/shards/0/2", shard.tobytes())
        assert server.step() is None
        assert server.step() is None
        assert brokers.held() == [[], []]
        for client in (1, 2):
            brokers.send(client, 0, [1.0, 1.0])
        np.testing.assert_allclose(model_of(server), [1.0, 1.0], atol=1e-9)
        # Not even after it was started again.
        brokers.kill(1)
        brokers.start(1)
        with pytest.raises(UnwantedError, match="was used or given up"):
            brokers.places("client-0")[1].ask("PUT", "/v1/shards/0/1", shard.tobytes())


def test_what_is_forged_or_malformed_is_refused_and_harms_nobody(hale: Brokers) -> None:
    server = hale.server()
    own, second = hale.places("client-0")
    stranger, sender = hale.places("nobody")[0], hale.places("server")[0]
    shard = split(np.array([1.0, 1.0]), 2)[0].tobytes()
    elsewhere = own.model_copy(update={"port": second.port, "certificate": second.certificate})
    mistaken = own.model_copy(update={"certificate": second.certificate})
    refused: list[tuple[Place, str, bytes, type[Exception], str]] = [
        (own, "0/1", shard[:8], UpdateError, "a shard of 8 bytes: expected 16, 8 for each weight"),
        (own, "0/1", shard + shard[:8], UpdateError, "24 bytes: expected at most 16"),
        (stranger, "0/1", shard, UpdateError, "expected a token of this broker"),
        (elsewhere, "0/1", shard, UpdateError, "expected a token of this broker"),
        (sender, "0/1", shard, UpdateError, "server sends no shards"),
        (mistaken, "0/1", shard, BrokerError, "CERTIFICATE_VERIFY_FAILED"),
        (own, "7/1", shard, BrokerError, "model 7 is not known here yet"),
    ]
    for place, path, sent, error, words in refused:
        with pytest.raises(error, match=words):
            place.ask("PUT", f"/v1/shards/{path}", sent)
    for path in ("/v1/component", "/v1/model", "/v1/prepare", "/v1/held", "/v1/agree"):
        with pytest.raises(UpdateError, match="client-0 may not do that"):
            own.post(path, {"version": 0, "size": 2})
    assert hale.held() == [[], []]
    # The same shard again, as after a lost answer, is no other one; another in its place is refused.
    for _ in range(2):
        own.ask("PUT", "/v1/shards/0/1", shard)
    with pytest.raises(UpdateError, match="was received before"):
        own.ask("PUT", "/v1/shards/0/1", shard[::-1])
    for client in (1, 2):
        hale.send(client, 0, [1.0, 3.0])
    np.testing.assert_allclose(model_of(server), [1.0, 3.0], atol=1e-9)
    server.settle()
    server.step()
    used = hale.servers[0].broker._known().settled.pop()
    sender = hale.places(broker_messages.client(used.participant))[0]
    with pytest.raises(UnwantedError, match="was used or given up"):
        sender.ask("PUT", f"/v1/shards/{used.base_version}/{used.number}", shard)


def test_fed_suda_uses_a_slow_clients_latest_update_again_until_it_is_too_old(tmp_path: Path) -> None:
    """Client 2 is slow (10 s against 1 s, L = 2), W = N = 3: each version takes all three; samples 3, 1, 1.

    Client 2 sends 5 once. Version v: (3 * 1 + 1 * 1 + 5) / 5 = 9 / 5 more. With T = 2 its update of version 0
    serves versions 1 to 3; then it is waited for.
    """
    with closing(Brokers(tmp_path, SUDA)) as brokers:
        server = brokers.server()
        brokers.send(2, 0, [5.0, 0.0])
        for version in range(3):
            assert server.step() is None
            for client in (0, 1):
                brokers.send(client, version, [1.0, 0.0])
            # A broker that is started again knows of the shadow and of the episode.
            brokers.kill(version % 2)
            brokers.start(version % 2)
            np.testing.assert_allclose(model_of(server), [(version + 1) * 9 / 5, 0.0], atol=1e-9)
            server.settle()
        assert server.step() is None
        for client in (0, 1):
            brokers.send(client, 3, [1.0, 0.0])
        assert server.step() is None
        # Its first is superseded by its second before it is used.
        brokers.send(2, 3, [100.0, 0.0])
        brokers.send(2, 3, [10.0, 0.0])
        np.testing.assert_allclose(model_of(server), [3 * 9 / 5 + 14 / 5, 0.0], atol=1e-9)
        server.settle()
        server.step()
        for updates in brokers.held():
            assert [update.participant for update in updates] == [2]
        # Four versions of each of the three, whatever was started again between.
        standing = brokers.places("runner")[0].post("/v1/standing")
        assert [one["used"] for one in standing] == [4, 4, 4]
        assert [one["staleness"] for one in standing] == [None, None, 1]
        assert [one["slow"] for one in standing] == [False, False, True]


def test_fed_suda_ends_with_a_line_where_a_client_has_left(folder: Path) -> None:
    with closing(Brokers(folder / "brokers", SUDA)) as brokers:
        setup(folder, (1, 1), strategy=SUDA, samples=SAMPLES, brokers=brokers.places("server"))
        with pytest.raises(RuntimeError, match="in fed_suda each takes part in every episode"):
            train(FakeGrid(set()), 0.0, 0.0)


def test_server_and_clients_train_over_brokers(folder: Path) -> None:
    """Three clients each add 2 to their own weight; hale_fed uses two of their updates for each version."""
    app = client_app(two_more_of_its_own)
    with closing(Brokers(folder / "brokers", HALE)) as brokers:
        for number in range(3):
            content = Places(brokers=brokers.places(broker_messages.client(number))).model_dump_json()
            (folder / f"{number + 1}.json").write_text(content)

        class Nodes(FakeGrid):
            def push_messages(self, messages: object) -> list[str]:
                ids = list(super().push_messages(messages))  # type: ignore[arg-type]
                for message in self.pushed[-len(ids) :]:
                    node = message.metadata.dst_node_id
                    config = {broker_messages.KEY: str(folder / f"{node}.json")}
                    reply = app(message, context(node, config))
                    assert not reply.content.array_records
                    self.answers.append(reply)
                return ids

        facts = {"strategy": HALE, "samples": SAMPLES, "brokers": brokers.places("server")}
        setup(folder, (1, 1, 1), rounds=6, **facts)
        found = train(Nodes({1, 2, 3}), 0.0, 0.0, 0.0)
    # Twelve updates, in turns: four of each client. Versions take {0, 1}, {2, 0}, {1, 2} and so on, with
    # samples 3, 1, 1: client 0 moves its weight by 2 * 3 / 4 four times; the others by 2 / 4 next to it and
    # by 2 / 2 next to each other, twice each.
    np.testing.assert_allclose(found, [6.0, 3.0, 3.0], atol=1e-6)
    status = status_of(folder)
    assert (status.completed, status.finished) == (6, True)
