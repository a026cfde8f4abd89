"""Questions to clients: who has been asked, who has answered, who must be asked again.

A synchronous round is one; asynchronous training is one without an end, whose question changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from spotweave.agents.federated.asynchronous.aggregator import UpdateError
from spotweave.deploy.fl.checkpoints import LINK_LOST, Participation, Setup, Status, one_line
from spotweave.deploy.fl.epoch import share_of

T = TypeVar("T")
_OWN_FAULT = (
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION,
    ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
    ErrorCode.MOD_FAILED_PRECONDITION,
    ErrorCode.INVALID_FAB,
)
_MAX_CRASHES = 3
"""A ClientApp that dies without an exception (killed, out of memory) is tried so often on one node."""


class _Question(NamedTuple):
    name: str
    attempt: int
    asked_s: float
    message: Message


class Answer(NamedTuple):
    """A delivered answer of a client."""

    name: str
    attempt: int
    asked: Message
    message: Message


class Round:
    """The state of one round.

    Args of its making:
        number: from 1.
        asked: the strategy's message to each client that takes part.
        status: told to the runner; its clients are changed here.
        grid: where messages go.
        check: raises UpdateError for an answer that cannot be used; it counts as the client's own fault.
    """

    def __init__(
        self,
        number: int,
        asked: Mapping[str, Message],
        status: Status,
        grid: Grid,
        check: Callable[[Message], None] = lambda answer: None,
    ) -> None:
        self._number = number
        self._asked = dict(asked)
        self._grid = grid
        self._check = check
        self._open: dict[str, _Question] = {}
        self._replies: dict[str, Answer] = {}
        self._crashes: dict[str, int] = {}
        for name in set(status.clients) - set(asked):
            status.clients[name].owes = False
        for name in asked:
            client = status.clients.setdefault(name, Participation())
            client.owes, client.asked_s = True, None
        self._clients = status.clients

    def is_over(self, quorum: int | None) -> bool:
        """Whether enough clients have delivered."""
        needed = len(self._asked) if quorum is None else min(quorum, len(self._asked))
        return len(self._replies) >= needed

    def replies(self) -> list[Message]:
        """In the order of the clients' names, so that sums do not depend on who was first."""
        return [self._replies[name].message for name in sorted(self._replies)]

    def take(self) -> list[Answer]:
        """What was delivered since the latest take, by name; who has delivered owes again."""
        found = [self._replies[name] for name in sorted(self._replies)]
        for answer in found:
            self._clients[answer.name].owes, self._clients[answer.name].asked_s = True, None
        self._replies.clear()
        return found

    def open(self) -> dict[str, Message]:
        """Open requests by client."""
        return {question.name: question.message for question in self._open.values()}

    def renew(self, content: RecordDict) -> None:
        """Replace the content of the requests."""
        for name, before in self._asked.items():
            about = before.metadata
            self._asked[name] = Message(content, about.dst_node_id, about.message_type)

    def refuse(self, answer: Answer, reason: str) -> None:
        """What was delivered cannot be used: only another attempt is asked again."""
        client = self._clients[answer.name]
        client.error, client.error_attempt = f"its update is refused: {reason}"[:300], answer.attempt
        client.refused += 1

    def step(self, setup: Setup) -> bool:
        """Take in replies, ask who is there and has not been asked. Returns whether the status changed."""
        changed = self._drop_who_left(setup)
        changed = self._forget_old_attempts(setup) or changed
        if self._open:
            for reply in self._grid.pull_messages(list(self._open)):
                question = self._open.pop(reply.metadata.reply_to_message_id, None)
                if question is not None:
                    self._take(question, reply)
                    changed = True
        return self._ask(setup) or changed

    def _drop_who_left(self, setup: Setup) -> bool:
        left = [name for name in self._asked if name not in setup.clients and name not in self._replies]
        for name in left:
            del self._asked[name]
            self._clients[name].owes = False
        for message_id in [one for one, question in self._open.items() if question.name in left]:
            del self._open[message_id]
        return bool(left)

    def _forget_old_attempts(self, setup: Setup) -> bool:
        """A client that is another process now knows nothing of what the earlier one was asked."""
        old = [
            message_id
            for message_id, question in self._open.items()
            if setup.clients[question.name].attempt != question.attempt
        ]
        for message_id in old:
            self._clients[self._open.pop(message_id).name].asked_s = None
        return bool(old)

    def _take(self, question: _Question, reply: Message) -> None:
        client = self._clients[question.name]
        if not reply.has_error():
            answer = Answer(question.name, question.attempt, question.message, reply)
            try:
                self._check(reply)
            except UpdateError as error:
                client.asked_s = None
                self.refuse(answer, str(error))
                return
            self._replies[question.name] = answer
            client.owes = False
            client.delivered += 1
            # The clock may have been set back meanwhile.
            client.last_epoch_s = max(0.0, time.time() - question.asked_s) / share_of(reply.content)
            client.error = ""
            return
        client.asked_s = None
        if reply.error.code in _OWN_FAULT:
            client.error, client.error_attempt = describe(reply.error.reason or ""), question.attempt
        elif reply.error.code == ErrorCode.CLIENT_APP_CRASHED:
            crashes = self._crashes[question.name] = self._crashes.get(question.name, 0) + 1
            if crashes >= _MAX_CRASHES:
                client.error = f"the ClientApp died {crashes} times without an exception: out of memory?"
                client.error_attempt = question.attempt
                self._crashes[question.name] = 0

    def _ask(self, setup: Setup) -> bool:
        busy = {question.name for question in self._open.values()}
        waiting = [name for name in self._asked if name not in self._replies and name not in busy]
        if not waiting:
            return False
        online = set(self._grid.get_node_ids())
        changed = False
        for name in waiting:
            expected, client = setup.clients[name], self._clients[name]
            failed = bool(client.error) and client.error_attempt >= expected.attempt
            if failed or expected.node_id not in online:
                continue
            template = self._asked[name]
            message = Message(
                template.content,
                expected.node_id,
                template.metadata.message_type,
                group_id=str(self._number),
            )
            (message_id,) = self._grid.push_messages([message])
            # None where the SuperLink did not take it; it is asked again at the next step.
            if message_id:
                client.asked_s = time.time()
                self._open[message_id] = _Question(name, expected.attempt, client.asked_s, message)
                changed = True
        return changed


def describe(reason: str) -> str:
    """Flower's "<class 'ValueError'>:<'text'>" as people write it, in one line."""
    text = " ".join(reason.split())
    if text.startswith("<class '") and "'>:<'" in text:
        kind, _, rest = text.removeprefix("<class '").partition("'>:<'")
        text = f"{kind.rpartition('.')[2]}: {rest.removesuffix(chr(39) + '>')}"
    return text[:300]


# A view of Flower's grid that tells a lost SuperLink from other errors.


class SuperLinkLost(Exception):  # noqa: N818
    """The SuperLink does not answer, or has given up this run. Not the app's fault."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"{LINK_LOST}: {one_line(cause)}")


class SafeGrid(Grid):
    """A grid whose failures are all SuperLinkLost; with `node_ids` it names these, online or not."""

    def __init__(self, grid: Grid, node_ids: Sequence[int] | None = None) -> None:
        self._inner, self._node_ids = grid, node_ids

    def set_run(self, run: Run) -> None:
        """Not for apps."""
        raise NotImplementedError("the run is set already")

    @property
    def run(self) -> Run:
        """The run."""
        return self._inner.run

    def create_message(self, *given: Any, **named: Any) -> Message:
        """A message; deprecated in Flower."""
        return self._inner.create_message(*given, **named)

    def get_node_ids(self) -> Iterable[int]:
        """Nodes that are online, or those that it was given."""
        return _answered(self._inner.get_node_ids) if self._node_ids is None else list(self._node_ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send."""
        return _answered(lambda: self._inner.push_messages(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Receive."""
        return _answered(lambda: self._inner.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send and wait."""
        return _answered(lambda: self._inner.send_and_receive(messages, timeout=timeout))


def _answered(ask: Callable[[], Iterable[T]]) -> list[T]:
    try:
        return list(ask())
    except Exception as error:
        raise SuperLinkLost(error) from error
