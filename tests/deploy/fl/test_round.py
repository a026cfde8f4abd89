"""One round against a grid that a test plays: who is asked, who is asked again, when it is over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from deploy.fl import checkpoints, synchronous, training
from deploy.fl import synchronous as fl_server
from deploy.fl.checkpoints import SETUP_VARIABLE, Checkpoint, Expected, Setup, Status
from deploy.fl.client import checkpointing_client_app
from deploy.fl.records import to_record
from deploy.fl.round import Round, SuperLinkLost, describe
from tests.deploy.fl.fake_grid import FakeGrid, result


def question(node_id: int) -> Message:
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    return Message(content, node_id, "train")


def setup(folder: Path, a: int = 1, b: int = 1, **kwargs: int) -> Setup:
    return Setup(
        rounds=kwargs.get("rounds", 2),
        quorum=kwargs.get("quorum"),
        run=kwargs.get("run", 1),
        folder=str(folder),
        clients={"a": Expected(node_id=1, attempt=a), "b": Expected(node_id=2, attempt=b)},
    )


@pytest.fixture
def status() -> Status:
    return Status(run=1)


@pytest.fixture
def grid() -> FakeGrid:
    return FakeGrid({1, 2})


@pytest.fixture
def one_round(status: Status, grid: FakeGrid) -> Round:
    return Round(1, {"a": question(1), "b": question(2)}, status, grid)


def test_a_round_is_over_when_all_have_delivered(
    one_round: Round, status: Status, grid: FakeGrid, tmp_path: Path
) -> None:
    assert one_round.step(setup(tmp_path))
    assert [message.metadata.dst_node_id for message in grid.pushed] == [1, 2]
    assert not one_round.step(setup(tmp_path))
    grid.answer(grid.pushed[1], result(2.0))
    assert one_round.step(setup(tmp_path))
    assert status.clients["a"].owes
    assert not status.clients["b"].owes
    assert status.clients["b"].delivered == 1
    assert not one_round.is_over(None)
    assert one_round.is_over(1)
    grid.answer(grid.pushed[0], result(1.0))
    one_round.step(setup(tmp_path))
    assert one_round.is_over(None)
    assert [reply.metadata.src_node_id for reply in one_round.replies()] == [1, 2]


def test_who_is_away_is_asked_when_it_comes(one_round: Round, grid: FakeGrid, tmp_path: Path) -> None:
    grid.online = {2}
    one_round.step(setup(tmp_path))
    assert [message.metadata.dst_node_id for message in grid.pushed] == [2]
    grid.online = {1, 2}
    one_round.step(setup(tmp_path))
    assert [message.metadata.dst_node_id for message in grid.pushed] == [2, 1]


def test_who_left_before_it_answered_is_asked_again(
    one_round: Round, status: Status, grid: FakeGrid, tmp_path: Path
) -> None:
    one_round.step(setup(tmp_path))
    grid.online = {2}
    grid.answer(grid.pushed[0], Error(ErrorCode.NODE_UNAVAILABLE, "gone"))
    one_round.step(setup(tmp_path))
    assert status.clients["a"].asked_s is None
    assert not status.clients["a"].error
    grid.online = {1, 2}
    one_round.step(setup(tmp_path))
    assert [message.metadata.dst_node_id for message in grid.pushed] == [1, 2, 1]


def test_a_new_attempt_is_asked_even_if_the_old_one_never_answers(
    one_round: Round, grid: FakeGrid, tmp_path: Path
) -> None:
    one_round.step(setup(tmp_path))
    one_round.step(setup(tmp_path, a=2))
    assert [message.metadata.dst_node_id for message in grid.pushed] == [1, 2, 1]
    # What the old one says after all is not taken twice.
    grid.answer(grid.pushed[0], result(9.0))
    one_round.step(setup(tmp_path, a=2))
    assert not one_round.replies()


def test_nobody_waits_for_who_takes_no_part_any_more(
    one_round: Round, status: Status, grid: FakeGrid, tmp_path: Path
) -> None:
    one_round.step(setup(tmp_path))
    grid.answer(grid.pushed[1], result(2.0))
    one_round.step(setup(tmp_path))
    assert not one_round.is_over(None)
    remaining = setup(tmp_path)
    del remaining.clients["a"]
    assert one_round.step(remaining)
    assert one_round.is_over(None)
    assert not status.clients["a"].owes
    # What it says after all is not taken.
    grid.answer(grid.pushed[0], result(9.0))
    one_round.step(remaining)
    assert [reply.metadata.src_node_id for reply in one_round.replies()] == [2]


def test_an_exception_is_told_and_not_asked_for_again_before_a_new_attempt(
    one_round: Round, status: Status, grid: FakeGrid, tmp_path: Path
) -> None:
    one_round.step(setup(tmp_path))
    grid.answer(
        grid.pushed[0], Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "<class 'ValueError'>:<'no\ndata'>")
    )
    one_round.step(setup(tmp_path))
    one_round.step(setup(tmp_path))
    assert status.clients["a"].error == "ValueError: no data"
    assert status.clients["a"].error_attempt == 1
    assert len(grid.pushed) == 2
    one_round.step(setup(tmp_path, a=2))
    assert len(grid.pushed) == 3
    grid.answer(grid.pushed[2], result(1.0))
    one_round.step(setup(tmp_path, a=2))
    assert status.clients["a"].error == ""


def test_a_crash_is_tried_three_times(
    one_round: Round, status: Status, grid: FakeGrid, tmp_path: Path
) -> None:
    one_round.step(setup(tmp_path))
    for count in range(3):
        assert not status.clients["a"].error
        asked = [message for message in grid.pushed if message.metadata.dst_node_id == 1]
        assert len(asked) == count + 1
        grid.answer(asked[-1], Error(ErrorCode.CLIENT_APP_CRASHED, "stopped responding"))
        one_round.step(setup(tmp_path))
    assert "died 3 times" in status.clients["a"].error


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
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A setup file of a job in its second run."""
    file = tmp_path / "setup.json"
    setup(tmp_path, rounds=3, run=2).save(file)
    monkeypatch.setenv(SETUP_VARIABLE, str(file))
    monkeypatch.setattr(synchronous, "_POLL_S", 0.0)
    return tmp_path


def context(state: Path | None = None) -> Context:
    config: dict[str, bool | float | int | str] = {} if state is None else {"spotweave-state": str(state)}
    return Context(1, 0, config, RecordDict(), {})


def test_a_run_goes_on_from_the_checkpoint_and_tells_each_round(started: Path, grid: FakeGrid) -> None:
    grid.automatic = True
    checkpoints.save(started / "checkpoints", Checkpoint(1, {"w": np.array([5.0])}))
    Status(run=1, completed=1, history={1: {"m": 0.5}}).save(started / "status.json")
    found = fl_server.train(
        grid, context(), to_record({"w": np.array([0.0])}), evaluate=lambda number, arrays: {"m": number}
    )
    # Rounds 2 and 3 only, of two clients; the mean of their numbers 1 and 2.
    assert len(grid.pushed) == 4
    assert found["w"].numpy() == pytest.approx([1.5])
    status = Status.load(started / "status.json")
    assert status is not None
    assert (status.run, status.completed, status.finished) == (2, 3, True)
    assert status.history == {1: {"m": 0.5}, 2: {"m": 2.0}, 3: {"m": 3.0}}
    assert status.resumed_from == "server"
    kept = checkpoints.load(started / "checkpoints")
    assert kept is not None
    assert kept.round == 3


def test_a_long_training_tells_of_its_latest_rounds(
    started: Path, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner reads what is told at every look."""
    monkeypatch.setattr(training, "HISTORY_ROUNDS", 2)
    setup(started, rounds=4, run=1).save(started / "setup.json")
    grid.automatic = True
    fl_server.train(
        grid, context(), to_record({"w": np.array([0.0])}), evaluate=lambda number, arrays: {"m": number}
    )
    status = Status.load(started / "status.json")
    assert status is not None
    assert status.history == {3: {"m": 3.0}, 4: {"m": 4.0}}


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("when", ["before the evaluation", "before it is told"])
def test_a_round_that_was_saved_and_not_told_is_told_by_the_next_run(
    started: Path, grid: FakeGrid, when: str
) -> None:
    """The ServerApp is killed after the first round's checkpoint."""
    setup(started, rounds=3, run=1).save(started / "setup.json")
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
        fl_server.train(grid, context(), to_record({"w": np.array([0.0])}), evaluate=evaluate)
    patch.undo()
    found = Status.load(started / "status.json")
    assert found is not None
    assert found.completed == 0
    fl_server.train(
        grid,
        context(),
        to_record({"w": np.array([0.0])}),
        evaluate=lambda number, arrays: {"m": 10 * number + float(arrays["w"].numpy()[0])},
    )
    status = Status.load(started / "status.json")
    assert status is not None
    assert status.history == {number: {"m": 10 * number + 1.5} for number in (1, 2, 3)}
    # Two rounds more, not three.
    assert len(grid.pushed) == 2 + 4


def test_a_server_that_lost_its_checkpoint_takes_the_newest_of_the_clients(
    started: Path, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clients' side is the real one: a ClientApp that was asked in rounds 2 (a) and 3 (b)."""
    app = checkpointing_client_app()
    app.train()(lambda message, context: Message(message.content, reply_to=message))
    for name, number in (("a", 2), ("b", 3)):
        content = RecordDict(
            {
                "arrays": to_record({"w": np.array([float(number)])}),
                "config": ConfigRecord({"server-round": number}),
            }
        )
        app(Message(content, 1, "train"), context(started / name))

    def ask(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        folders = {1: "a", 2: "b"}
        return [
            app(message, context(started / folders[message.metadata.dst_node_id])) for message in messages
        ]

    monkeypatch.setattr(grid, "send_and_receive", ask)
    Status(run=1, completed=2).save(started / "status.json")
    grid.automatic = True
    fl_server.train(grid, context(), to_record({"w": np.array([0.0])}))
    status = Status.load(started / "status.json")
    assert status is not None
    assert status.resumed_from == "client b"
    sent = grid.pushed[0].content.array_records["arrays"]["w"].numpy()
    assert sent == pytest.approx([3.0])
    assert len(grid.pushed) == 2


def test_a_lost_superlink_is_not_the_apps_error(started: Path, grid: FakeGrid) -> None:
    checkpoints.save(started / "checkpoints", Checkpoint(1, {"w": np.array([5.0])}))
    grid.broken = True
    with pytest.raises(SuperLinkLost, match="the SuperLink was lost: ConnectionError: refused"):
        fl_server.train(grid, context(), to_record({"w": np.array([0.0])}))
    status = Status.load(started / "status.json")
    assert status is not None
    assert status.error == ""


def test_the_apps_own_error_is_told(started: Path, grid: FakeGrid) -> None:
    checkpoints.save(started / "checkpoints", Checkpoint(1, {"w": np.array([5.0])}))
    grid.automatic = True

    def evaluate(number: int, arrays: ArrayRecord) -> dict[str, float]:
        raise LookupError("no test\nset")

    with pytest.raises(LookupError):
        fl_server.train(grid, context(), to_record({"w": np.array([0.0])}), evaluate=evaluate)
    status = Status.load(started / "status.json")
    assert status is not None
    assert status.error == "LookupError: no test set"


def test_an_app_that_spotweave_did_not_start_says_so(monkeypatch: pytest.MonkeyPatch, grid: FakeGrid) -> None:
    monkeypatch.delenv(SETUP_VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="spotweave submit"):
        fl_server.train(grid, context(), ArrayRecord())
