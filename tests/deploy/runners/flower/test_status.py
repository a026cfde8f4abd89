"""What a ServerApp may tell, whose fault it was, who is silent for how long, and what people are told."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import pytest

from spotweave.deploy.fl.broker import Standing
from spotweave.deploy.fl.checkpoints import Participation, Status
from spotweave.deploy.model.jobs import Flower, FlowerClient, TaskKey
from spotweave.deploy.model.strategies import FedAsync, HaleFed
from spotweave.deploy.model.tasks import Assignment, Node
from spotweave.deploy.node.api import ProcessStatus
from spotweave.deploy.node.client import NodeRefused, NodeUnknown, NodeUnreachable
from spotweave.deploy.runners import workers
from spotweave.deploy.runners.flower import liveness
from spotweave.deploy.runners.flower.checkpoints import read_status
from spotweave.deploy.runners.flower.liveness import Probes, Silence, last_exception
from spotweave.deploy.runners.flower.runner import asynchronous_details
from spotweave.deploy.runners.flower.training import server_failure
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.workers import wait_for
from tests.deploy.runners.flower.stage import PlayedNode
from tests.deploy.runners.flower.world import job_spec


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "flower").mkdir()
    return tmp_path


def read(work: Path, content: str | bytes) -> Status | None:
    (work / "flower/status.json").write_bytes(content.encode() if isinstance(content, str) else content)
    return read_status(JobFolder(work), rounds=4)


POISON = [
    "",
    "{",
    "null",
    "[]",
    "\0",
    b"\xff\xfe",
    "[" * 100_000,
    '{"run": 1, "completed": ' + "1" + "0" * 30 + "}",
    '{"run": 1, "completed": ' + "9" * 100_000 + "}",
    '{"run": 1, "completed": -1}',
    '{"run": 1, "completed": 5}',
    '{"run": 1, "completed": NaN}',
    '{"run": 1, "completed": 0.5}',
    '{"run": 1, "completed": "a lot"}',
    '{"run": -1}',
    '{"run": 1e400}',
    '{"completed": 1}',
    '{"run": 1, "more": 1}',
    '{"run": 1, "error": "' + "x" * 1001 + '"}',
    '{"run": 1, "resumed_from": "' + "x" * 1001 + '"}',
    '{"run": 1, "metrics": {"a": "b"}}',
    '{"run": 1, "history": {"-1": {}}}',
    *(
        json.dumps({"run": 1, "clients": {"a": {key: value}}})
        for key, value in [
            ("last_epoch_s", math.nan),
            ("last_epoch_s", math.inf),
            ("last_epoch_s", -1.0),
            ("last_epoch_s", 1e300),
            ("asked_s", math.nan),
            ("asked_s", -1e300),
            ("delivered", -1),
            ("delivered", 10**400),
            ("error_attempt", 10**400),
            ("owes", "perhaps"),
        ]
    ),
    " " * (4 << 20) + '{"run": 1}',
]


@pytest.mark.parametrize("content", POISON, ids=range(len(POISON)))
def test_what_no_serverapp_says_is_refused_in_one_short_line(work: Path, content: str | bytes) -> None:
    with pytest.raises(PoisonError) as caught:
        read(work, content)
    assert str(caught.value).startswith("flower/status.json ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_training_that_has_diverged_says_so(work: Path) -> None:
    """Its metrics were written as null, which nobody could read again."""
    said = Status(run=1, metrics={"loss": math.nan, "norm": math.inf}, history={1: {"loss": math.nan}})
    found = read(work, said.model_dump_json(indent=1))
    assert found is not None
    assert math.isnan(found.metrics["loss"])
    assert found.metrics["norm"] == math.inf
    assert math.isnan(found.history[1]["loss"])


RAISED = "ServerApp failed with exception: "


KEY_ERROR = Status(run=2, error="KeyError: 'x'")


@pytest.mark.parametrize(
    ("details", "status", "run", "reason"),
    [
        (f"{RAISED}'x'", KEY_ERROR, 2, "KeyError: 'x'"),
        # Said by an earlier run.
        ("No heartbeat", KEY_ERROR, 3, ""),
        # An app without our loop.
        (f"{RAISED}no\nsuch column", None, 1, "the ServerApp failed: no such column"),
        # A lost service is nobody's fault.
        ("", Status(run=1), 1, ""),
        ("Task failed with unknown error.", Status(run=1), 1, ""),
        ("No heartbeat received from the task.", Status(run=1), 1, ""),
        (f"{RAISED}the SuperLink was lost: ConnectError: refused", Status(run=1), 1, ""),
    ],
)
def test_whose_fault_it_was(details: str, status: Status | None, run: int, reason: str) -> None:
    assert server_failure(details, status, run) == reason


def test_the_last_exception_of_a_log() -> None:
    log = """INFO: start
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    import nothing
ModuleNotFoundError: No module named 'nothing'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in load
flwr.clientapp.client_app.LoadClientAppError: Unable to load module
INFO: sent
"""
    assert last_exception(log) == "flwr.clientapp.client_app.LoadClientAppError: Unable to load module"
    assert last_exception("INFO: fine\n") == ""


@pytest.mark.parametrize(
    ("looks", "silent_s"),
    [
        pytest.param(
            [(True, 0), (False, 2), (False, 5), (True, 6), (False, 9)], [0, 2, 5, 0, 3], id="from a good sign"
        ),
        pytest.param([(False, 1e6)], [0], id="nothing before the first look"),
        pytest.param([(True, 0), (False, 3600), (False, 3602)], [0, 15, 17], id="not while nobody looked"),
    ],
)
def test_how_long_it_is_silent(looks: list[tuple[bool, float]], silent_s: list[float]) -> None:
    silence = Silence()
    assert [silence.note(good, now_s) for good, now_s in looks] == pytest.approx(silent_s)


CLIENTS = (FlowerClient(name="a", samples=3), FlowerClient(name="b", samples=1))


def test_without_brokers_the_server_says_how_often_each_was_used() -> None:
    """9 of 12 used updates are a's: it has three quarters of the samples, and counts for as much."""
    work = Flower(app="x", rounds=9, clients=CLIENTS, strategy=FedAsync(kind="fed_async"))
    status = Status(run=1, clients={"a": Participation(version=11)}, used=[9, 3])
    assert asynchronous_details(work, status, [], "a") == {"weight": "0.75", "version": "11", "share": "0.75"}
    assert asynchronous_details(work, status, [], "b") == {"weight": "0.25", "share": "0.25"}
    assert asynchronous_details(work, None, [], "b") == {"weight": "0.25"}


def test_with_brokers_these_do() -> None:
    strategy = HaleFed(kind="hale_fed", updates_per_round=2)
    work = Flower(app="x", rounds=9, clients=CLIENTS, strategy=strategy)
    standing = [Standing(used=1, staleness=None, slow=False), Standing(used=7, staleness=4, slow=True)]
    assert asynchronous_details(work, None, standing, "a") == {"weight": "0.75", "share": "0.125"}
    assert asynchronous_details(work, None, standing, "b") == {
        "weight": "0.25",
        "share": "0.875",
        "staleness": "4",
        "shadow": "yes",
    }


# Nodes that are asked in threads.


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


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> type[AskedNode]:
    monkeypatch.setattr(workers, "NodeClient", AskedNode)
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
    node.error = NodeUnknown(404, "unknown")
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
