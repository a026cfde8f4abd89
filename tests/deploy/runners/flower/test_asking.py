"""Nodes that are asked in threads, and logs of any length."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from deploy.model.jobs import TaskKey
from deploy.model.tasks import Assignment, Node
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeRefused, NodeUnreachable
from deploy.runners.flower import asking
from deploy.runners.flower.asking import Asking
from deploy.runners.flower.crew import wait_for
from tests.deploy.runners.flower.world import job_spec

MIB = 1 << 20
WORDS = b"Traceback (most recent call last):\n  x\nImportError: no module\n"


class PlayedNode:
    """As `NodeClient`, with a log of any length that ends with an exception."""

    state = "exited"
    length = 0
    received = 0
    error: Exception | None = None
    answers = threading.Event()

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> PlayedNode:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def process(self, process_id: str) -> ProcessStatus:
        assert self.answers.wait(60)
        if self.error is not None:
            raise self.error
        return ProcessStatus.model_validate(
            {"process_id": process_id, "pid": 1, "state": self.state, "started_s": 0.0}
        )

    def log(self, process_id: str, offset: int = 0) -> bytes:
        end = min(self.length, offset + MIB)
        inside = max(0, min(end, self.length - len(WORDS)) - offset)
        piece = b"\n" * inside
        if end > self.length - len(WORDS):
            piece += WORDS[max(0, offset - self.length + len(WORDS)) : end - self.length + len(WORDS)]
        PlayedNode.received += len(piece)
        return piece


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> type[PlayedNode]:
    monkeypatch.setattr(asking, "NodeClient", PlayedNode)
    for name, value in {"state": "exited", "length": 0, "received": 0, "error": None}.items():
        monkeypatch.setattr(PlayedNode, name, value)
    monkeypatch.setattr(PlayedNode, "answers", threading.Event())
    PlayedNode.answers.set()
    return PlayedNode


def assignment(name: str = "a") -> Assignment:
    node = Node("i-a", "127.0.0.9", 1, "token", 1, 1.0)
    spec = job_spec("mean", 4, {name: {}})
    return Assignment(TaskKey("job", f"client-{name}"), 1, spec, (node,), str(Path("/nowhere")))


def ask(words: bool = False) -> asking.Answer:
    asked = Asking()
    wait_for([asked.begin(assignment(), "p", words=words)], 60)
    found = asked.latest(assignment())
    assert found is not None
    return found


@pytest.mark.parametrize("length", [len(WORDS), 5000, MIB - 1, MIB, MIB + 1, 7 * MIB + 12345, 100 << 30])
def test_the_last_words_of_a_log_are_found_and_not_all_of_it_is_read(
    node: type[PlayedNode], length: int
) -> None:
    node.length = length
    assert ask().words == "ImportError: no module"
    assert node.received < 64 * MIB


def test_a_process_that_runs_is_asked_for_its_words_only_where_they_are_wanted(
    node: type[PlayedNode],
) -> None:
    node.state, node.length = "running", 100
    assert ask().words == ""
    assert ask(words=True).words == "ImportError: no module"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NodeUnreachable("refused\nthe connection"), "refused the connection"),
        (NodeRefused(401, "no"), "no"),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug"),
    ],
)
def test_whatever_a_node_does_is_an_answer(node: type[PlayedNode], error: Exception, reason: str) -> None:
    node.error = error
    assert ask().unreachable == reason


def test_a_process_that_a_node_does_not_know_is_none(node: type[PlayedNode]) -> None:
    node.error = NodeRefused(404, "unknown")
    found = ask()
    assert (found.process, found.unreachable) == (None, "")


def test_nodes_that_hang_do_not_hold_up_those_that_answer(node: type[PlayedNode]) -> None:
    """A hundred that hang, known as such, and one that does not."""
    asked = Asking()
    node.error = NodeUnreachable("no")
    names = [f"n{number}" for number in range(100)]
    wait_for([asked.begin(assignment(name), "p", words=False) for name in names], 60)
    node.answers.clear()
    hung = [asked.begin(assignment(name), "p", words=False) for name in names]
    node.answers = threading.Event()
    node.answers.set()
    node.error = None
    fresh = asked.begin(assignment("fresh"), "p", words=False)
    wait_for([fresh], 60)
    assert fresh.future.done()
    assert asked.begin(assignment(names[-1]), "p", words=False) is hung[-1]
