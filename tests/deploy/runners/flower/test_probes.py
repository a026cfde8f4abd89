"""Nodes that are asked in threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from deploy.model.jobs import TaskKey
from deploy.model.tasks import Assignment, Node
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeRefused, NodeUnreachable
from deploy.runners import nodes
from deploy.runners.flower import liveness
from deploy.runners.flower.liveness import Probes
from deploy.runners.workers import wait_for
from tests.deploy.runners.flower.stage import PlayedNode
from tests.deploy.runners.flower.world import job_spec


class AskedNode(PlayedNode):
    """One whose process is in a state, or who fails."""

    state = "exited"
    error: Exception | None = None
    answers = threading.Event()

    def process(self, process_id: str) -> ProcessStatus:
        assert self.answers.wait(60)
        if self.error is not None:
            raise self.error
        found = {"process_id": process_id, "pid": 1, "state": self.state, "started_s": 0.0}
        return ProcessStatus.model_validate(found)


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> type[AskedNode]:
    monkeypatch.setattr(nodes, "NodeClient", AskedNode)
    for name, value in {"state": "exited", "error": None, "answers": threading.Event()}.items():
        monkeypatch.setattr(AskedNode, name, value)
    AskedNode.answers.set()
    return AskedNode


def assignment(name: str = "a") -> Assignment:
    node = Node("i-a", "127.0.0.9", 1, "token", 1, 1.0)
    spec = job_spec("mean", 4, {name: {}})
    return Assignment(TaskKey("job", f"client-{name}"), 1, spec, (node,), str(Path("/nowhere")))


def ask(words: bool = False) -> liveness.Probe:
    asked = Probes()
    wait_for([asked.begin(assignment(), "p", words=words)], 60)
    found = asked.latest(assignment())
    assert found is not None
    return found


def test_last_words_of_what_runs_are_asked_for_where_wanted(node: type[AskedNode]) -> None:
    node.state = "running"
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
def test_whatever_a_node_does_is_an_answer(node: type[AskedNode], error: Exception, reason: str) -> None:
    node.error = error
    assert ask().unreachable == reason


def test_a_process_that_a_node_does_not_know_is_none(node: type[AskedNode]) -> None:
    node.error = NodeRefused(404, "unknown")
    found = ask()
    assert (found.process, found.unreachable) == (None, "")


def test_nodes_that_hang_do_not_hold_up_those_that_answer(node: type[AskedNode]) -> None:
    """A hundred that hang, known as such, and one that does not."""
    asked = Probes()
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
