"""A grid of Flower that a test plays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from numpy.typing import NDArray

from spotweave.deploy.fl import checkpoints, synchronous
from spotweave.deploy.fl.checkpoints import Checkpoint, Expected, Setup, Status
from spotweave.deploy.fl.client import checkpointing_client_app
from spotweave.deploy.fl.records import from_record, to_record


class Killed(BaseException):
    """The process ends here."""


class FakeGrid(Grid):
    """Nodes that answer when the test says so."""

    def __init__(self, online: set[int]) -> None:
        self.online = online
        self.pushed: list[Message] = []
        self.answers: list[Message] = []
        self.automatic = False
        self.broken = False

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *_: object, **__: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        if self.broken:
            raise ConnectionError("refused")
        return list(self.online)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{len(self.pushed)}"
            self.pushed.append(message)
            ids.append(message.metadata.message_id)
            if self.automatic:
                self.answer(message, result(float(message.metadata.dst_node_id)))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        found = [answer for answer in self.answers if answer.metadata.reply_to_message_id in wanted]
        self.answers = [answer for answer in self.answers if answer not in found]
        return found

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        raise NotImplementedError

    def answer(self, message: Message, content: Any) -> None:
        self.answers.append(Message(content, reply_to=message))

    def asked(self) -> list[int]:
        return [message.metadata.dst_node_id for message in self.pushed]


def trained(weights: object, **arrays: Array) -> RecordDict:
    found = {"w": Array(np.asarray(weights)), **arrays}
    return RecordDict({"arrays": ArrayRecord(found), "metrics": MetricRecord({"num-examples": 1})})


def result(value: float) -> RecordDict:
    return trained([value])


def client_app(after: Callable[[NDArray[Any], int], NDArray[Any]]) -> ClientApp:
    """A ClientApp whose node trains so: from the weights that it is sent, and its number."""
    app = checkpointing_client_app()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        before = np.array(message.content.array_records["arrays"]["w"].numpy())
        return Message(trained(after(before, context.node_id)), reply_to=message)

    return app


def two_more_of_its_own(before: NDArray[Any], node: int) -> NDArray[Any]:
    """Node n adds 2 to weight n - 1 and nothing to the others."""
    before[node - 1] += 2.0
    return before


def context(node: int = 0, config: Mapping[str, bool | float | int | str] | None = None) -> Context:
    return Context(1, node, dict(config or {}), RecordDict(), {})


def train(grid: Grid, *weights: float, **options: Any) -> list[float]:
    """The ServerApp; returns the weights at the end."""
    found = synchronous.train(grid, context(), to_record({"w": np.array(weights or (0.0,))}), **options)
    return [float(value) for value in from_record(found)["w"]]


def setup(folder: Path, attempts: Sequence[int] = (1, 1), **told: Any) -> Setup:
    """What the runner tells the ServerApp: clients a, b and so on are nodes 1, 2 and so on."""
    clients = {
        "abc"[number]: Expected(node_id=number + 1, attempt=attempt, number=number)
        for number, attempt in enumerate(attempts)
    }
    told = {"rounds": 1, "run": 1, "samples": [1] * len(clients), **told}
    made = Setup(folder=str(folder), clients=clients, **told)
    made.save(folder / "setup.json")
    return made


def status_of(folder: Path) -> Status:
    status = Status.load(folder / "status.json")
    assert status is not None
    return status


def kept(folder: Path) -> Checkpoint:
    found = checkpoints.load(folder)
    assert found is not None
    return found
