"""How attempts' processes are on their nodes: asked in threads, and who does not answer holds up no other."""

from __future__ import annotations

import time
from dataclasses import dataclass

from deploy.model.tasks import Assignment
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnreachable
from deploy.runners.flower.failures import last_exception
from deploy.runners.workers import Work, WorkerPool

_FAST, _SLOW = 16, 4


@dataclass(frozen=True)
class Probe:
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


class Probes:
    """Asks nodes; keeps their latest answers, by attempt."""

    def __init__(self) -> None:
        self._fast, self._slow = WorkerPool("flower-nodes", _FAST), WorkerPool("flower-slow-nodes", _SLOW)
        self._latest: dict[str, Probe] = {}

    def begin(self, assignment: Assignment, process_id: str, *, words: bool) -> Work:
        """Ask, unless the latest question is still open.

        Args:
            assignment: an attempt on a node.
            process_id: of its process.
            words: whether its last words are wanted though it runs.
        """
        name = assignment.attempt_id
        self.latest(assignment)
        if (work := self._fast.pending(name) or self._slow.pending(name)) is not None:
            return work
        before = self._latest.get(name)
        # Nodes that answer must not wait behind those that do not.
        pool = self._slow if before is not None and before.unreachable else self._fast
        return pool.begin(name, lambda: _ask(assignment, process_id, words=words))

    def latest(self, assignment: Assignment) -> Probe | None:
        """The latest answer, None before there is one."""
        name = assignment.attempt_id
        for pool in (self._fast, self._slow):
            work = pool.pending(name)
            if work is not None and work.future.done():
                pool.collect(name)
                found = work.future.result()
                assert isinstance(found, Probe)
                self._latest[name] = found
        return self._latest.get(name)

    def forget(self, attempt_id: str) -> None:
        """It is not asked about any more."""
        self._fast.collect(attempt_id)
        self._slow.collect(attempt_id)
        self._latest.pop(attempt_id, None)


def _ask(assignment: Assignment, process_id: str, *, words: bool) -> Probe:
    asked_s = time.monotonic()
    node = assignment.nodes[0]
    try:
        with NodeClient(node.address, node.port, node.token, node.certificate) as agent:
            try:
                process = agent.process(process_id)
            except NodeRefused as error:
                if error.code == 404:
                    return Probe(asked_s)
                raise NodeUnreachable(str(error)) from error
            ended = process.state != "running"
            return Probe(asked_s, process, words=_last_words(agent, process_id) if ended or words else "")
    except NodeUnreachable as error:
        return Probe(asked_s, unreachable=" ".join(str(error).split())[:200])
    except Exception as error:
        # Whatever the node sent: it is one attempt's matter.
        return Probe(asked_s, unreachable=f"{type(error).__name__}: {error}".splitlines()[0][:200])


def _last_words(agent: NodeClient, process_id: str) -> str:
    """The last exception in its log."""
    try:
        return last_exception(agent.last_log(process_id).decode(errors="replace"))
    except NodeError:
        return ""
