"""What one client of a synchronous training can do to the average, and what a strategy may wait for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from deploy.fl.checkpoints import Expected, Setup, Status
from deploy.fl.records import from_record, to_record
from deploy.fl.synchronous import Synchronous
from deploy.model import strategies
from tests.deploy.fl.fake_grid import FakeGrid, status_of, trained

BEFORE = to_record({"w": np.array([3.0, 4.0]), "steps": np.array([7])})


def answer(w: object, steps: object = (8,), examples: float = 1.0, **metrics: float) -> RecordDict:
    found = trained(np.asarray(w, np.float64), steps=Array(np.asarray(steps)))
    found["metrics"] = MetricRecord({"num-examples": examples, **metrics})
    return found


def setup(folder: Path, attempt: int = 1, **settings: float) -> None:
    clients = {"a": Expected(node_id=1, attempt=attempt), "b": Expected(node_id=2, attempt=1)}
    strategy = strategies.FedAvg(**settings)  # type: ignore[arg-type]
    Setup(rounds=1, run=1, folder=str(folder), clients=clients, strategy=strategy).save(folder / "setup.json")


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
            setup(folder, attempt=2)

    monkeypatch.setattr("deploy.fl.synchronous.time.sleep", wait)
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
    setup(folder, clip_norm=2.0)
    # Both updates point along the first axis: a's of 30 becomes one of 2, b's of -2 stays.
    _, weights = played(folder, answer([33.0, 4.0]), monkeypatch)
    assert weights == pytest.approx([(5.0 + 1.0) / 2, 4.0])


@pytest.mark.parametrize(("available", "train"), [(2, 5), (5, 2)])
def test_a_strategy_that_wants_more_clients_fails(folder: Path, available: int, train: int) -> None:
    setup(folder)
    strategy = FedAvg(min_available_nodes=available, min_train_nodes=train)
    with pytest.raises(RuntimeError, match="the strategy needs 5 clients and 2 are left"):
        Synchronous(FakeGrid({1, 2}), BEFORE, strategy).run()
