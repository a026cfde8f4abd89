"""How attempts' processes are on their nodes: asked in threads, and who does not answer holds up no other."""

from __future__ import annotations

import time
from dataclasses import dataclass

from deploy.model.tasks import Assignment
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnreachable
from deploy.runners.flower.crew import Crew, Errand
from deploy.runners.flower.failures import last_exception

_FAST, _SLOW = 16, 4
_TAIL_BYTES = 1 << 18
_PIECE_BYTES = 1 << 20
_LOG_MOST_BYTES = 1 << 40


@dataclass(frozen=True)
class Answer:
    """What a node said of a process.

    Attributes:
        asked_s: when it was asked, of a monotonic clock.
        process: None: it does not know it.
        unreachable: why there is no answer, "" if there is one.
        words: the last exception of its log, where that was asked for or the process has ended.
    """

    asked_s: float
    process: ProcessStatus | None = None
    unreachable: str = ""
    words: str = ""


class Asking:
    """Asks nodes; keeps their latest answers, by attempt."""

    def __init__(self) -> None:
        self._fast, self._slow = Crew("flower-nodes", _FAST), Crew("flower-slow-nodes", _SLOW)
        self._latest: dict[str, Answer] = {}

    def begin(self, assignment: Assignment, process_id: str, *, words: bool) -> Errand:
        """Ask, unless the latest question is still open.

        Args:
            assignment: an attempt on a node.
            process_id: of its process.
            words: whether its last words are wanted though it runs.
        """
        name = assignment.attempt_id
        self.latest(assignment)
        if (errand := self._fast.pending(name) or self._slow.pending(name)) is not None:
            return errand
        before = self._latest.get(name)
        # Nodes that answer must not wait behind those that do not.
        crew = self._slow if before is not None and before.unreachable else self._fast
        return crew.begin(name, lambda: _ask(assignment, process_id, words=words))

    def latest(self, assignment: Assignment) -> Answer | None:
        """The latest answer, None before there is one."""
        name = assignment.attempt_id
        for crew in (self._fast, self._slow):
            errand = crew.pending(name)
            if errand is not None and errand.future.done():
                crew.collect(name)
                found = errand.future.result()
                assert isinstance(found, Answer)
                self._latest[name] = found
        return self._latest.get(name)

    def forget(self, attempt_id: str) -> None:
        """It is not asked about any more."""
        self._fast.collect(attempt_id)
        self._slow.collect(attempt_id)
        self._latest.pop(attempt_id, None)


def _ask(assignment: Assignment, process_id: str, *, words: bool) -> Answer:
    asked_s = time.monotonic()
    node = assignment.nodes[0]
    try:
        with NodeClient(node.address, node.port, node.token) as agent:
            try:
                process = agent.process(process_id)
            except NodeRefused as error:
                if error.code == 404:
                    return Answer(asked_s)
                raise NodeUnreachable(str(error)) from error
            ended = process.state != "running"
            return Answer(asked_s, process, words=_last_words(agent, process_id) if ended or words else "")
    except NodeUnreachable as error:
        return Answer(asked_s, unreachable=" ".join(str(error).split())[:200])
    except Exception as error:
        # Whatever the node sent: it is one attempt's matter.
        return Answer(asked_s, unreachable=f"{type(error).__name__}: {error}".splitlines()[0][:200])


def _last_words(agent: NodeClient, process_id: str) -> str:
    """The last exception of a log of any length, read from its end."""
    try:
        log = agent.log(process_id)
        if len(log) >= _PIECE_BYTES:
            # A node says of a log's length only that there is nothing from its end on.
            low, high = 0, _PIECE_BYTES
            while high < _LOG_MOST_BYTES and agent.log(process_id, high):
                low, high = high, 2 * high
            while high - low > _TAIL_BYTES:
                middle = (low + high) // 2
                low, high = (middle, high) if agent.log(process_id, middle) else (low, middle)
            log = agent.log(process_id, max(0, low - _TAIL_BYTES))
    except NodeError:
        return ""
    return last_exception(log[-2 * _TAIL_BYTES :].decode(errors="replace"))
