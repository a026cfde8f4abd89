"""Asynchronous training without brokers, against nodes that answer when the test says so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from spotweave.agents.federated.asynchronous.hp_asgd import HpAsgd as HpAsgdAggregator
from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import Checkpoint, Status
from spotweave.deploy.fl.records import from_record, to_record
from spotweave.deploy.fl.synchronous import Synchronous
from spotweave.deploy.model import strategies
from spotweave.deploy.model.strategies import FedAsync, HpAsgd
from tests.deploy.fl.fake_grid import (
    FakeGrid,
    Killed,
    client_app,
    context,
    kept,
    setup,
    status_of,
    train,
    trained,
    two_more_of_its_own,
)


class Nodes(FakeGrid):
    """Nodes 1 and 2 run a real ClientApp and answer when the script says so, with which the process ends.

    Those of a part of it answer together, once all of them have been asked.
    """

    def __init__(self, app: ClientApp, script: Iterable[Sequence[int]]) -> None:
        super().__init__({1, 2})
        self.app = app
        self.script = list(script)
        self.waiting: dict[int, Message] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        self.waiting |= {message.metadata.dst_node_id: message for message in pushed}
        return super().push_messages(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        if not self.script:
            raise Killed
        if set(self.script[0]) <= set(self.waiting):
            self.answers += [self._work(self.waiting.pop(node)) for node in self.script.pop(0)]
        return super().pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [self._work(message) for message in messages]

    def _work(self, message: Message) -> Message:
        return self.app(message, context(message.metadata.dst_node_id))


def adding(*amounts: float) -> ClientApp:
    """Node n adds amounts[n - 1] to each weight."""
    return client_app(lambda before, node: before + amounts[node - 1])


def test_fed_async_mixes_each_model_in_as_it_comes(folder: Path) -> None:
    """alpha = 1/2, a = 1: an update of staleness s is mixed in with 1/2 / (s + 2).

    Node 1 answers (0 + 4 = 4, s = 0): x = 3/4 * 0 + 1/4 * 4 = 1. Node 2, asked for version 0, answers 0 + 8:
    s = 1, 1/6: x = 5/6 + 8/6 = 13/6. Node 1, asked for version 1, answers 1 + 4 = 5: s = 1 again:
    x = 5/6 * 13/6 + 5/6 = 65/36 + 30/36 = 95/36.
    """
    setup(folder, strategy=FedAsync(kind="fed_async", mixing=0.5, staleness_exponent=1.0), rounds=3)
    assert train(Nodes(adding(4.0, 8.0), [[1], [2], [1]])) == pytest.approx([95 / 36])
    status = status_of(folder)
    assert (status.completed, status.finished) == (3, True)
    assert [status.history[number]["staleness_mean"] for number in (1, 2, 3)] == [0, 1, 1]
    assert {name: client.delivered for name, client in status.clients.items()} == {"a": 2, "b": 1}


def test_hp_asgd_counts_a_client_that_answers_often_for_less(folder: Path) -> None:
    """M_L = 2, p = (3/4, 1/4), fre_n = (N_n + 1) / (M_A + 2); x moves by the mean of p_n / fre_n * D_n.

    Nodes 1 and 2 add 1 and 10. Version 1: scales (3/4) / (1/2) = 3/2 and (1/4) / (1/2) = 1/2, both of x = 0:
    x = (1.5 * 1 + 0.5 * 10) / 2 = 3.25. Then node 1 answers twice; N = (1, 1), M_A = 2, so again 3/2 each:
    x = 3.25 + 1.5 = 4.75. N = (3, 1), M_A = 4: scales (3/4) / (4/6) = 9/8 and (1/4) / (2/6) = 3/4.
    Node 2, asked for version 1, has waited: x = 4.75 + (9/8 * 1 + 3/4 * 10) / 2 = 4.75 + 4.3125 = 9.0625.
    """
    setup(folder, strategy=HpAsgd(kind="hp_asgd", updates_per_round=2), rounds=3, samples=[3, 1])
    assert train(Nodes(adding(1.0, 10.0), [[1, 2], [1], [], [1], [], [1], [2]])) == pytest.approx([9.0625])
    assert status_of(folder).history[3]["staleness_most"] == 1


def test_what_is_too_old_is_not_used(folder: Path) -> None:
    """T = 0: node 2 was asked for version 0 and answers at version 1. x = 0 + 4 / 2 = 2, 2 + 4 / 2 = 4."""
    setup(
        folder,
        strategy=FedAsync(kind="fed_async", mixing=0.5, staleness_exponent=0.0, staleness_most=0),
        rounds=2,
    )
    assert train(Nodes(adding(4.0, 100.0), [[1], [2], [1]])) == [4.0]


def counting(script: Iterable[Sequence[int]]) -> Nodes:
    return Nodes(client_app(two_more_of_its_own), script)


@pytest.mark.parametrize("where", ["before the checkpoint", "after the checkpoint", "while updates go"])
@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_killed_server_uses_each_update_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, when: int
) -> None:
    """Killed at each of three versions. Node 1 delivers two of the updates of every version, node 2 one.

    Without the scale (it is 1 where both have been used alike) a weight would be the count; so the scales are
    taken away, and with M_L = 3 each used update moves its weight by 2 / 3.
    """
    monkeypatch.setattr(HpAsgdAggregator, "scale", lambda self, participant: 1.0)
    setup(folder, strategy=HpAsgd(kind="hp_asgd", updates_per_round=3), rounds=3)
    look = [[1, 2], [], [1]]
    save_as_it_is, unlink, calls = checkpoints.save, Path.unlink, [0]

    def save(place: Path, checkpoint: Checkpoint, keep: int = 2) -> None:
        if checkpoint.source == "server" and place.name == "checkpoints":
            calls[0] += 1
            if calls[0] == when and where == "before the checkpoint":
                raise Killed
        save_as_it_is(place, checkpoint, keep)
        if calls[0] == when and where == "after the checkpoint":
            raise Killed

    def remove(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "updates" and calls[0] == when and where == "while updates go":
            raise Killed
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", save)
        patch.setattr(Path, "unlink", remove)
        with pytest.raises(Killed):
            train(counting(look * 3), 0.0, 0.0)
    taken = len(list((folder / "updates").glob("*.npz")))
    assert taken == 3
    setup(folder, strategy=HpAsgd(kind="hp_asgd", updates_per_round=3), rounds=3, run=2)
    found = train(counting(look * 3), 0.0, 0.0)
    # Nine updates, six of node 1: none lost, none twice.
    assert found == pytest.approx([6 * 2 / 3, 3 * 2 / 3])
    assert not list((folder / "updates").glob("*.npz"))
    assert json.loads(kept(folder / "checkpoints").state)["counts"] == [6, 3]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (np.array([1.0, 2.0]), "array 'w' has shape (2,): expected (1,)"),
        (np.array([np.nan]), "NaN or infinity"),
        (np.array(["x"]), "expected numbers"),
    ],
)
def test_an_update_of_no_use_is_refused(folder: Path, weights: np.ndarray, expected: str) -> None:
    """Node 1 alone brings the training to its end: alpha = 1/2 of 1 each time."""
    setup(folder, strategy=FedAsync(kind="fed_async", mixing=0.5, staleness_exponent=0.0), rounds=2)
    app = client_app(lambda before, node: before + 1.0 if node == 1 else weights)
    assert train(Nodes(app, [[2], [1], [1]])) == pytest.approx([1.0])
    error = status_of(folder).clients["b"].error
    assert error.startswith("its update is refused: ")
    assert expected in error
    assert "\n" not in error
    assert status_of(folder).clients["b"].error_attempt == 1


def test_a_client_app_without_our_mod_is_refused_where_differences_are_wanted(folder: Path) -> None:
    """Its whole model would be taken for a difference."""
    app = ClientApp()

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": message.content.array_records["arrays"]}), reply_to=message)

    setup(folder, strategy=HpAsgd(kind="hp_asgd", updates_per_round=1), rounds=1)
    with pytest.raises(Killed):
        train(Nodes(app, [[1]]))
    assert "none of `checkpointing_client_app`" in status_of(folder).clients["a"].error


def test_a_strategy_of_the_app_and_an_asynchronous_one_of_the_job_do_not_go_together(folder: Path) -> None:
    setup(folder, strategy=FedAsync(kind="fed_async"), rounds=1)
    with pytest.raises(ValueError, match="fed_async and the ServerApp brings FedAvg: leave one out"):
        train(counting([]), strategy=FedAvg())


# What one client of a synchronous training can do to the average, and what a strategy may wait for.


BEFORE = to_record({"w": np.array([3.0, 4.0]), "steps": np.array([7])})


def answer(w: object, steps: object = (8,), examples: float = 1.0, **metrics: float) -> RecordDict:
    found = trained(np.asarray(w, np.float64), steps=Array(np.asarray(steps)))
    found["metrics"] = MetricRecord({"num-examples": examples, **metrics})
    return found


def played(folder: Path, first: RecordDict, monkeypatch: pytest.MonkeyPatch) -> tuple[Status, np.ndarray]:
    """One round in which client a answers with `first`, and with [5, 4] at its next attempt; b with [1, 4].

    Returns the status as it was when a had answered first, and the weights of the round.
    """
    grid = FakeGrid({1, 2})
    of_a = iter([first, answer([5.0, 4.0])])
    seen: list[Status] = []
    answered = 0

    def wait(_: float) -> None:
        nonlocal answered
        # Nodes are asked in a random order.
        for message in grid.pushed[answered:]:
            grid.answer(message, next(of_a) if message.metadata.dst_node_id == 1 else answer([1.0, 4.0]))
            answered += 1
        status = status_of(folder)
        if status.clients["a"].refused and not seen:
            seen.append(status)
            setup(folder, (2, 1))

    monkeypatch.setattr("spotweave.deploy.fl.synchronous.time.sleep", wait)
    result = Synchronous(grid, BEFORE).run()
    return (seen[0] if seen else status_of(folder)), np.asarray(from_record(result)["w"])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (answer([np.nan, 4.0]), "its weights hold NaN or infinity"),
        (answer([np.inf, 4.0]), "its weights hold NaN or infinity"),
        (answer([1e200, 4.0]), "its weights hold NaN or infinity"),
        (answer([1e12, 4.0]), "its update has norm 1e+12, and the model 5"),
        (answer([1.0, 2.0, 3.0]), r"its array 'w' has shape (3,): expected (2,)"),
        (answer([1.0, 4.0], examples=1e30), "its 'num-examples' is 1e+30: expected 0 to 1000000000"),
        (answer([1.0, 4.0], examples=-1.0), "its 'num-examples' is -1.0"),
        (answer([1.0, 4.0], loss=float("nan")), "its metric 'loss' is nan"),
        (RecordDict({"arrays": ArrayRecord({"v": Array(np.zeros(2))})}), "it holds the arrays ['v']"),
        (RecordDict({}), "it holds no arrays"),
    ],
)
def test_an_answer_that_would_spoil_the_average_is_refused_and_its_client_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: RecordDict, reason: str
) -> None:
    setup(folder)
    status, weights = played(folder, given, monkeypatch)
    client = status.clients["a"]
    assert client.error.startswith(f"its update is refused: {reason}")
    assert (client.refused, client.error_attempt, client.delivered) == (1, 1, 0)
    # Its next attempt was asked again, and the average is that of two good answers.
    assert weights.tolist() == [3.0, 4.0]


def test_a_long_update_is_scaled_down_to_the_norm_that_the_job_sets(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup(folder, strategy=strategies.FedAvg(clip_norm=2.0))
    # Both updates point along the first axis: a's of 30 becomes one of 2, b's of -2 stays.
    _, weights = played(folder, answer([33.0, 4.0]), monkeypatch)
    assert weights == pytest.approx([(5.0 + 1.0) / 2, 4.0])


@pytest.mark.parametrize(("available", "train"), [(2, 5), (5, 2)])
def test_a_strategy_that_wants_more_clients_fails(folder: Path, available: int, train: int) -> None:
    setup(folder)
    strategy = FedAvg(min_available_nodes=available, min_train_nodes=train)
    with pytest.raises(RuntimeError, match="the strategy needs 5 clients and 2 are left"):
        Synchronous(FakeGrid({1, 2}), BEFORE, strategy).run()
