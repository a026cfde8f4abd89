"""One round against a grid that a test plays: who is asked, who is asked again, when it is over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from numpy.typing import NDArray

from spotweave.deploy.fl import checkpoints, training
from spotweave.deploy.fl import synchronous as fl_server
from spotweave.deploy.fl.checkpoints import SETUP_VARIABLE, Checkpoint, Status
from spotweave.deploy.fl.client import checkpointing_client_app
from spotweave.deploy.fl.records import to_record
from spotweave.deploy.fl.round import Round, SuperLinkLost, describe
from tests.deploy.fl.fake_grid import FakeGrid, Killed, context, kept, result, setup, status_of, train


def question(node_id: int) -> Message:
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    return Message(content, node_id, "train")


class Asked(Round):
    """The first round of two clients."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.told, self.nodes = folder, Status(run=1), FakeGrid({1, 2})
        super().__init__(1, {"a": question(1), "b": question(2)}, self.told, self.nodes)

    def look(self, a: int = 1) -> bool:
        """A step, in which client a is at this attempt."""
        return self.step(setup(self.folder, (a, 1), rounds=2))

    def answer(self, message: int, content: RecordDict | Error) -> None:
        self.nodes.answer(self.nodes.pushed[message], content)

    def delivered(self) -> list[int]:
        return [reply.metadata.src_node_id for reply in self.replies()]


@pytest.fixture
def grid() -> FakeGrid:
    return FakeGrid({1, 2})


@pytest.fixture
def one(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def test_a_round_is_over_when_all_have_delivered(one: Asked) -> None:
    assert one.look()
    assert one.nodes.asked() == [1, 2]
    assert not one.look()
    one.answer(1, result(2.0))
    assert one.look()
    assert one.told.clients["a"].owes
    assert not one.told.clients["b"].owes
    assert one.told.clients["b"].delivered == 1
    assert not one.is_over(None)
    assert one.is_over(1)
    one.answer(0, result(1.0))
    one.look()
    assert one.is_over(None)
    assert one.delivered() == [1, 2]


def test_who_is_away_or_left_before_it_answered_is_asked_when_it_is_back(one: Asked) -> None:
    one.nodes.online = {2}
    one.look()
    assert one.nodes.asked() == [2]
    one.nodes.online = {1, 2}
    one.look()
    assert one.nodes.asked() == [2, 1]
    one.nodes.online = {2}
    one.answer(1, Error(ErrorCode.NODE_UNAVAILABLE, "gone"))
    one.look()
    assert one.told.clients["a"].asked_s is None
    assert not one.told.clients["a"].error
    one.nodes.online = {1, 2}
    one.look()
    assert one.nodes.asked() == [2, 1, 1]


def test_a_new_attempt_is_asked_even_if_the_old_one_never_answers(one: Asked) -> None:
    one.look()
    one.look(a=2)
    assert one.nodes.asked() == [1, 2, 1]
    # What the old one says after all is not taken twice.
    one.answer(0, result(9.0))
    one.look(a=2)
    assert not one.replies()


def test_nobody_waits_for_who_takes_no_part_any_more(one: Asked) -> None:
    one.look()
    one.answer(1, result(2.0))
    one.look()
    assert not one.is_over(None)
    remaining = setup(one.folder, rounds=2)
    del remaining.clients["a"]
    assert one.step(remaining)
    assert one.is_over(None)
    assert not one.told.clients["a"].owes
    # What it says after all is not taken.
    one.answer(0, result(9.0))
    one.step(remaining)
    assert one.delivered() == [2]


def test_an_exception_is_told_and_not_asked_for_again_before_a_new_attempt(one: Asked) -> None:
    one.look()
    one.answer(0, Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "<class 'ValueError'>:<'no\ndata'>"))
    one.look()
    one.look()
    client = one.told.clients["a"]
    assert (client.error, client.error_attempt) == ("ValueError: no data", 1)
    assert one.nodes.asked() == [1, 2]
    one.look(a=2)
    assert one.nodes.asked() == [1, 2, 1]
    one.answer(2, result(1.0))
    one.look(a=2)
    assert one.told.clients["a"].error == ""


def test_a_crash_is_tried_three_times(one: Asked) -> None:
    one.look()
    for count, message in enumerate((0, 2, 3)):
        assert not one.told.clients["a"].error
        assert one.nodes.asked() == [1, 2] + [1] * count
        one.answer(message, Error(ErrorCode.CLIENT_APP_CRASHED, "stopped responding"))
        one.look()
    assert "died 3 times" in one.told.clients["a"].error


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("<class 'ValueError'>:<'no data'>", "ValueError: no data"),
        ("<class 'my.module.OwnError'>:<'a\n  b'>", "OwnError: a b"),
        ("<class 'KeyError'>:<''it''>", "KeyError: 'it'"),
        ("something else", "something else"),
    ],
)
def test_flowers_reasons_are_made_readable(reason: str, expected: str) -> None:
    assert describe(reason) == expected


@pytest.fixture
def started(folder: Path) -> Path:
    """Of a job in its second run, after a round."""
    setup(folder, rounds=3, run=2)
    checkpoints.save(folder / "checkpoints", Checkpoint(1, {"w": np.array([5.0])}))
    return folder


def numbered(number: int, arrays: ArrayRecord) -> dict[str, float]:
    return {"m": number}


def test_a_run_goes_on_from_the_checkpoint_and_tells_each_round(started: Path, grid: FakeGrid) -> None:
    grid.automatic = True
    Status(run=1, completed=1, history={1: {"m": 0.5}}).save(started / "status.json")
    # Rounds 2 and 3 only, of two clients; the mean of their numbers 1 and 2.
    assert train(grid, evaluate=numbered) == pytest.approx([1.5])
    assert len(grid.pushed) == 4
    status = status_of(started)
    assert (status.run, status.completed, status.finished) == (2, 3, True)
    assert status.history == {1: {"m": 0.5}, 2: {"m": 2.0}, 3: {"m": 3.0}}
    assert status.resumed_from == "server"
    assert kept(started / "checkpoints").round == 3


def test_a_long_training_tells_of_its_latest_rounds(
    folder: Path, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner reads what is told at every look."""
    monkeypatch.setattr(training, "HISTORY_ROUNDS", 2)
    setup(folder, rounds=4)
    grid.automatic = True
    train(grid, evaluate=numbered)
    assert status_of(folder).history == {3: {"m": 3.0}, 4: {"m": 4.0}}


@pytest.mark.parametrize("when", ["before the evaluation", "before it is told"])
def test_a_round_that_was_not_told_is_told_by_the_next_run(folder: Path, grid: FakeGrid, when: str) -> None:
    """The ServerApp is killed after the first round's checkpoint."""
    setup(folder, rounds=3)
    patch = pytest.MonkeyPatch()

    def die(*_: object) -> None:
        raise Killed

    def evaluate(number: int, arrays: ArrayRecord) -> dict[str, float]:
        if when == "before the evaluation":
            raise Killed
        patch.setattr(Status, "save", die)
        return {"m": 9.0}

    grid.automatic = True
    with pytest.raises(Killed):
        train(grid, evaluate=evaluate)
    patch.undo()
    assert status_of(folder).completed == 0
    train(grid, evaluate=lambda number, arrays: {"m": 10 * number + float(arrays["w"].numpy()[0])})
    assert status_of(folder).history == {number: {"m": 10 * number + 1.5} for number in (1, 2, 3)}
    # Two rounds more, not three.
    assert len(grid.pushed) == 2 + 4


def test_a_server_that_lost_its_checkpoint_takes_the_newest_of_the_clients(
    folder: Path, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clients' side is the real one: a ClientApp that was asked in rounds 2 (a) and 3 (b)."""
    setup(folder, rounds=3, run=2)
    app = checkpointing_client_app()
    app.train()(lambda message, context: Message(message.content, reply_to=message))
    states = {node: {"spotweave-state": str(folder / str(node))} for node in (1, 2)}
    for node, number in ((1, 2), (2, 3)):
        config = ConfigRecord({"server-round": number})
        content = RecordDict({"arrays": to_record({"w": np.array([float(number)])}), "config": config})
        app(Message(content, 1, "train"), context(0, states[node]))

    def ask(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return [app(message, context(0, states[message.metadata.dst_node_id])) for message in messages]

    monkeypatch.setattr(grid, "send_and_receive", ask)
    Status(run=1, completed=2).save(folder / "status.json")
    grid.automatic = True
    train(grid)
    assert status_of(folder).resumed_from == "client b"
    assert grid.pushed[0].content.array_records["arrays"]["w"].numpy() == pytest.approx([3.0])
    assert len(grid.pushed) == 2


def test_a_lost_superlink_is_not_the_apps_error(started: Path, grid: FakeGrid) -> None:
    grid.broken = True
    with pytest.raises(SuperLinkLost, match="the SuperLink was lost: ConnectionError: refused"):
        train(grid)
    assert status_of(started).error == ""


def test_the_apps_own_error_is_told(started: Path, grid: FakeGrid) -> None:
    grid.automatic = True

    def evaluate(number: int, arrays: ArrayRecord) -> dict[str, float]:
        raise LookupError("no test\nset")

    with pytest.raises(LookupError):
        train(grid, evaluate=evaluate)
    assert status_of(started).error == "LookupError: no test set"


def test_an_app_that_spotweave_did_not_start_says_so(monkeypatch: pytest.MonkeyPatch, grid: FakeGrid) -> None:
    monkeypatch.delenv(SETUP_VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="spotweave submit"):
        fl_server.train(grid, context(), ArrayRecord())


# What is chosen to go on from.


def weights(number: int, source: str = "server") -> Checkpoint:
    return Checkpoint(number, {"layer.0/weight": np.full((2, 3), number, dtype=np.float32)}, source)


def test_what_is_kept_is_what_was_saved(tmp_path: Path) -> None:
    arrays: dict[str, NDArray[np.generic]] = {
        "b": np.arange(6, dtype=np.float64).reshape(2, 3),
        "a": np.array([1, 2], dtype=np.int32),
        "file": np.array(7.5, dtype=np.float16),
    }
    checkpoints.save(tmp_path, Checkpoint(4, arrays))
    found = kept(tmp_path)
    assert found.round == 4
    assert list(found.arrays) == ["b", "a", "file"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype


def test_the_newest_is_loaded_and_old_ones_go(tmp_path: Path) -> None:
    for number in (1, 2, 9, 10, 11):
        checkpoints.save(tmp_path, weights(number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000010.npz", "round-000011.npz"]
    assert kept(tmp_path).round == 11


@pytest.mark.parametrize("harm", ["truncate", "flip", "empty"])
def test_a_broken_file_is_passed_over_for_the_one_before(tmp_path: Path, harm: str) -> None:
    checkpoints.save(tmp_path, weights(1))
    checkpoints.save(tmp_path, weights(2))
    path = tmp_path / "round-000002.npz"
    content = path.read_bytes()
    flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
    path.write_bytes({"truncate": content[:-1], "flip": flipped, "empty": b""}[harm])
    assert kept(tmp_path).round == 1


def test_a_clients_newer_checkpoint_wins_and_the_servers_of_equals(tmp_path: Path) -> None:
    assert checkpoints.newest([checkpoints.load(tmp_path), checkpoints.load(tmp_path / "missing")]) is None
    server, client, other = weights(3), weights(3, "client a"), weights(4, "client b")
    assert checkpoints.newest([server, client]) is server
    assert checkpoints.newest([server, client, other]) is other
    assert checkpoints.newest([None, client]) is client
