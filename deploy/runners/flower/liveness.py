"""Which clients are there, and which of them have stopped working: by looking, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from spotweave.deploy.fl.checkpoints import Participation
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.node.api import ProcessStatus
from spotweave.deploy.node.client import NodeClient, NodeError
from spotweave.deploy.runners.flower.settings import ClientRecord, FlowerSettings
from spotweave.deploy.runners.workers import Work, WorkerPool, connect, known_process

# How attempts' processes are on their nodes: asked in threads, and who does not answer holds up no other.

_FAST, _SLOW = 16, 4
Take = Callable[[NodeClient, bool], None]


@dataclass(frozen=True)
class Probe:
    """A node's answer about a process."""

    asked_s: float  # when it was asked, of a monotonic clock
    process: ProcessStatus | None = None  # None: it does not know it
    unreachable: str = ""  # why there is no answer, "" if there is one
    words: str = ""  # the last exception of its log, where that was asked for or the process has ended


class Probes:
    """Asks nodes; keeps their latest answers, by attempt."""

    def __init__(self) -> None:
        self._fast, self._slow = WorkerPool("flower-nodes", _FAST), WorkerPool("flower-slow-nodes", _SLOW)
        self._latest: dict[str, Probe] = {}

    def begin(
        self, assignment: Assignment, process_id: str, *, words: bool, take: Take | None = None
    ) -> Work:
        """Ask, unless the latest question is still open.

        `words`: also for its last words while it runs. `take`: called while the node answers, with whether
        the process has ended.
        """
        name = assignment.attempt_id
        self.latest(assignment)
        if (work := self._fast.pending(name) or self._slow.pending(name)) is not None:
            return work
        before = self._latest.get(name)
        # Nodes that answer must not wait behind those that do not.
        pool = self._slow if before is not None and before.unreachable else self._fast
        return pool.begin(name, lambda: _ask(assignment, process_id, words=words, take=take))

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
        """Stop asking about an attempt."""
        self._fast.collect(attempt_id)
        self._slow.collect(attempt_id)
        self._latest.pop(attempt_id, None)


def _ask(assignment: Assignment, process_id: str, *, words: bool, take: Take | None) -> Probe:
    asked_s = time.monotonic()
    try:
        agent = connect(assignment.nodes[0])
        process = known_process(agent, process_id)
        if process is None:
            return Probe(asked_s)
        ended = process.state != "running"
        if take is not None:
            take(agent, ended)
        return Probe(asked_s, process, words=_last_words(agent, process_id) if ended or words else "")
    except NodeError as error:
        return Probe(asked_s, unreachable=" ".join(str(error).split())[:200])
    except Exception as error:
        # Whatever the node sent: it is one attempt's matter.
        return Probe(asked_s, unreachable=f"{type(error).__name__}: {error}".splitlines()[0][:200])


def _last_words(agent: NodeClient, process_id: str) -> str:
    try:
        return last_exception(agent.last_log(process_id).decode(errors="replace"))
    except NodeError:
        return ""


def last_exception(log: str) -> str:
    """The last exception of a log in one line ("ModuleNotFoundError: No module named 'x'"), "" for none."""
    found = ""
    inside = False
    for line in log.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
            kind = line.partition(":")[0]
            if kind.replace(".", "").replace("_", "").isalnum():
                found = line
    return " ".join(found.split())[:300]


_GAP_MOST_S = 15.0
_Question = tuple[int, int, int, float]
"""Attempt, run, rounds delivered, when it was asked: what a client owes until it is another."""


class Silence:
    """Seconds since the latest good sign.

    Of the time between two looks only so much counts: a scheduler that was held up itself, or was suspended
    with its machine, must not take that for the silence of others.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked_s: float | None = None

    def note(self, good: bool, now_s: float | None = None) -> float:
        """Take a look, `now_s` by a monotonic clock, into account. Returns the seconds of silence."""
        now_s = time.monotonic() if now_s is None else now_s
        if good:
            self.seconds = 0.0
        elif self._looked_s is not None:
            self.seconds += min(now_s - self._looked_s, _GAP_MOST_S)
        self._looked_s = now_s
        return self.seconds


@dataclass
class _Client:
    agent: Silence = field(default_factory=Silence)
    offline: Silence = field(default_factory=Silence)
    starting: Silence = field(default_factory=Silence)
    owing: Silence = field(default_factory=Silence)
    answer: Probe | None = None
    question: _Question | None = None
    expected_s: float | None = None
    seen_s: float = 0.0


class Liveness:
    """Which clients of a job have stopped answering."""

    def __init__(self, settings: FlowerSettings, epoch_s: float | None) -> None:
        self._settings = settings
        self._epoch_s = epoch_s  # what the job says of a client's part of a round; None: nothing
        self._clients: dict[str, _Client] = {}

    def forget(self, name: str) -> None:
        """Forget a client that begins another attempt."""
        self._clients.pop(name, None)

    def superlink_restarted(self) -> None:
        """Expect every online node to reconnect, and check them again."""
        for name, old in self._clients.items():
            self._clients[name] = _Client(agent=old.agent, seen_s=old.seen_s)

    def seen(self, name: str) -> None:
        """Note that a client has come online."""
        self._client(name).seen_s = time.monotonic()

    def seen_s(self, name: str) -> float:
        """When it was seen online first, of a monotonic clock; 0 if that was before this process."""
        return self._client(name).seen_s

    def agent(self, name: str, latest: Probe | None) -> None:
        """Take note of what its node's agent answered last: what it did before the last look counts once."""
        client = self._client(name)
        client.agent.note(latest is not None and latest is not client.answer and not latest.unreachable)
        client.answer = latest

    def look(self, name: str, record: ClientRecord, here: bool, own: Participation | None, run: int) -> None:
        """Note whether its SuperLink says that it is `here`, and what its ServerApp says in a run."""
        client = self._client(name)
        client.offline.note(here or not record.seen)
        client.starting.note(record.seen)
        question = None
        if own is not None and own.owes and own.asked_s is not None and record.seen:
            question = (record.attempt, run, own.delivered, own.asked_s)
            client.expected_s = self._epoch_s if own.last_epoch_s is None else own.last_epoch_s
        # The clock is ours, not the ServerApp's: it may say anything.
        client.owing.note(question is None or question != client.question)
        client.question = question

    def verdict(self, name: str, record: ClientRecord) -> tuple[str, bool]:
        """Why an attempt is to be given up, "" if it is not; and whether it is there and hangs."""
        client, settings = self._client(name), self._settings
        if client.agent.seconds > settings.node_silent_s:
            return f"its node has not answered for {client.agent.seconds:.0f} s", False
        if client.offline.seconds > settings.node_silent_s:
            return f"its SuperNode has been offline for {client.offline.seconds:.0f} s", False
        if client.starting.seconds > settings.start_within_s:
            return f"its process has not come online within {client.starting.seconds:.0f} s", False
        if client.expected_s is not None and client.question is not None:
            patience_s = settings.hung_floor_s + settings.hung_factor * client.expected_s
            if client.owing.seconds > patience_s * 2.0 ** min(record.hangs, 30):
                return (
                    f"it hangs: it has owed a result for {client.owing.seconds:.0f} s, "
                    f"and {client.expected_s:.0f} s are expected"
                ), True
        return "", False

    def _client(self, name: str) -> _Client:
        return self._clients.setdefault(name, _Client())
