"""A grid of Flower that a test plays."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run


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

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
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

    def answer(self, message: Message, content: RecordDict | Error) -> None:
        if isinstance(content, Error):
            self.answers.append(Message(content, reply_to=message))
        else:
            self.answers.append(Message(content, reply_to=message))


def result(value: float) -> RecordDict:
    return RecordDict(
        {
            "arrays": ArrayRecord({"w": Array(np.array([value]))}),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
