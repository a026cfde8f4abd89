"""A runner and its two clients against a SuperLink and nodes that a test plays."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.fl.checkpoints import Setup, Status
from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.model.tasks import Assignment, Node, Phase, TaskReport
from spotweave.deploy.node.api import NodeStatus, ProcessSpec, ProcessStatus
from spotweave.deploy.node.client import NodeUnknown, NodeUnreachable
from spotweave.deploy.objects.location import FolderObjects, ObjectsError
from spotweave.deploy.runners import workers
from spotweave.deploy.runners.flower import job
from spotweave.deploy.runners.flower.inspecting import Inspector, inspect
from spotweave.deploy.runners.flower.job import FlowerJob
from spotweave.deploy.runners.flower.runner import FlowerRunner, FlowerSettings
from spotweave.deploy.runners.flower.superlink import Run, SuperLinkDown
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.flower.world import job_spec
from tests.deploy.runners.patience import insist

FAILED, LOST, RUNNING, SUCCEEDED = (
    {"a": phase, "b": phase} for phase in (Phase.FAILED, Phase.LOST, Phase.RUNNING, Phase.SUCCEEDED)
)


class Clock:
    """The runner's, for what it waits for."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.perf_counter() + self.ahead_s


class Played:
    """What the SuperLink and the nodes would say."""

    def __init__(self) -> None:
        self.starts = 0
        self.devices: tuple[Path, ...] = ()
        self.alive = False
        self.nodes: dict[str, int] = {}
        self.here: set[int] = set()
        self.list: list[Run] = []
        self.offline: list[str] = []
        self.refuse = ""
        self.said = ""
        """The last line of the SuperLink's log."""
        self.processes: dict[str, dict[str, ProcessStatus]] = {}
        self.files: dict[tuple[str, str], bytes] = {}
        """By address and path, as they were put, or a test plays what an instance made."""
        self.unreachable: set[str] = set()
        self.slow = threading.Event()
        """Set: answers come at once; not set: they do not come."""
        self.slow.set()
        self.slow_nodes = threading.Event()
        self.slow_nodes.set()

    def finish(self, completed: bool, details: str = "") -> None:
        self.list[-1] = Run(self.list[-1].run_id, True, completed, details)


class PlayedSuperLink:
    """As `SuperLink`."""

    played: Played
    address = "127.0.0.1:1"
    log = Path("/nonexistent")

    def __init__(self, *_: object) -> None: ...
    def trim_log(self) -> None: ...

    def running(self) -> bool:
        return self.played.alive

    def start(self, *_: object, devices: tuple[Path, ...], placed: bool, **__: object) -> None:
        self.played.starts += 1
        self.played.devices = devices
        self.played.alive = True

    def fault(self) -> str:
        return ""

    def last_line(self) -> str:
        return self.played.said or "no such option"

    def end(self) -> None:
        self.played.alive = False

    def _answer(self) -> Played:
        assert self.played.slow.wait(60)
        if not self.played.alive:
            raise SuperLinkDown("refused")
        return self.played

    def online(self) -> set[int]:
        return set(self._answer().here)

    def register(self, name: str) -> int:
        return self._answer().nodes.setdefault(name, 100 + len(self.played.nodes))

    def set_offline(self, name: str, node_id: int) -> None:
        self._answer().offline.append(name)
        self.played.here.discard(node_id)

    def runs(self) -> list[Run]:
        return list(self._answer().list)

    def stop_run(self, run_id: int) -> None:
        stopped = Run(run_id, True, False, "stopped")
        self._answer().list = [stopped if run.run_id == run_id else run for run in self.played.list]

    def start_run(self, name: str, content: bytes, config: Mapping[str, object]) -> int:
        if self._answer().refuse:
            raise ValueError(self.played.refuse)
        self.played.list.append(Run(1000 + len(self.played.list), False, False, ""))
        return self.played.list[-1].run_id


class PlayedNode:
    """As `NodeClient`."""

    played: Played

    def __init__(self, address: str, *_: object, **__: object) -> None:
        self.address = address

    def _mine(self) -> dict[str, ProcessStatus]:
        assert self.played.slow_nodes.wait(60)
        if self.address in self.played.unreachable:
            raise NodeUnreachable("refused")
        return self.played.processes.setdefault(self.address, {})

    def status(self) -> NodeStatus:
        here = {"instance_id": self.address, "address": self.address, "workdir": "/node", "now_s": 0.0}
        return NodeStatus.model_validate({**here, "processes": tuple(self._mine().values())})

    def put_file(self, path: str, content: bytes) -> None:
        self._mine()
        self.played.files[self.address, path] = content

    def get_file(self, path: str, size: int) -> bytes:
        self._mine()
        try:
            return self.played.files[self.address, path][:size]
        except KeyError:
            raise NodeUnknown(404, "no such file") from None

    def start_process(self, spec: ProcessSpec) -> ProcessStatus:
        started = ProcessStatus(process_id=spec.process_id, pid=1, state="running", started_s=0.0)
        return self._mine().setdefault(spec.process_id, started)

    def process(self, process_id: str) -> ProcessStatus:
        try:
            return self._mine()[process_id]
        except KeyError:
            raise NodeUnknown(404, "unknown") from None

    def _end(self, process_id: str, code: int) -> ProcessStatus:
        ended = self.process(process_id).model_copy(update={"state": "exited", "exit_code": code})
        self._mine()[process_id] = ended
        return ended

    def signal(self, process_id: str, name: str) -> ProcessStatus:
        return self._end(process_id, 0)

    def stop_process(self, process_id: str, wait_s: float) -> ProcessStatus:
        return self._end(process_id, 0)

    def log(self, process_id: str, offset: int) -> bytes:
        self.process(process_id)
        return b"epoch 1\n"[offset:]

    def last_log(self, process_id: str, most_bytes: int = 1 << 16) -> bytes:
        return b"Traceback (most recent call last):\n  x\nImportError: no module\n"


def play(patch: pytest.MonkeyPatch) -> Played:
    """Let runners of Flower talk to a SuperLink and nodes of which a test says what they would say.

    Apps are read here: a process for each would import Flower for more than a second.
    """
    patch.setattr(Inspector, "look", lambda _, folder, name: inspect(folder / name, name))
    played = Played()
    PlayedSuperLink.played = PlayedNode.played = played
    patch.setattr(job, "SuperLink", PlayedSuperLink)
    patch.setattr(workers, "NodeClient", PlayedNode)
    return played


AWS_FAILED = "s3://b/a: AWS failed"


class Store(FolderObjects):
    """A folder that a test breaks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.down = ""
        self.puts = 0

    def put(self, name: str, content: bytes) -> None:
        self.puts += 1
        self._fail()
        super().put(name, content)

    def names(self, start: str) -> Sequence[str]:
        self._fail()
        return super().names(start)

    def _fail(self) -> None:
        if self.down:
            raise ObjectsError(self.down)

    def kept(self) -> list[list[int]]:
        """Runs and rounds."""
        return sorted([int(number) for number in re.findall(r"\d+", name)] for name in super().names("job/"))


class Stage:
    """A runner, its two clients, and what it thinks runs."""

    def __init__(self, folder: Path, played: Played, clock: Clock) -> None:
        self.folder = folder
        self.played = played
        self.clock = clock
        # A machine that is busy needs more than the usual seconds for a look.
        self.settings = FlowerSettings(folder / "state", reports_within_s=60.0)
        self.runner = FlowerRunner(self.settings)
        self.runner.start()
        self.attempts = {"a": 1, "b": 1}
        self.spec = job_spec("mean", 4, {"a": {}, "b": {}})

    @property
    def flower(self) -> Path:
        """What the job has of its training."""
        return self.folder / "work/flower"

    @property
    def state(self) -> Path:
        """What the runner has of the job."""
        return self.folder / "state/job"

    def assignment(self, name: str) -> Assignment:
        attempt = self.attempts[name]
        node = Node(f"i-{name}{attempt}", f"127.0.{attempt}.{ord(name)}", 1, "token", 1, 1.0)
        key = TaskKey("job", f"client-{name}")
        return Assignment(key, attempt, self.spec, (node,), str(self.folder / "work"))

    def address(self, name: str) -> str:
        return self.assignment(name).nodes[0].address

    def both(self) -> list[Assignment]:
        return [self.assignment(name) for name in ("a", "b")]

    def ensure(self, *names: str) -> None:
        for name in names:
            self.runner.ensure(self.assignment(name))

    def all_come(self) -> None:
        self.played.here = set(self.played.nodes.values())

    def begin(self) -> None:
        self.ensure("a", "b")
        # On a busy machine both may share a step, and its successor registers them.
        wait_until(lambda: bool(self.phases()) and len(self.played.nodes) == len(self.attempts))
        self.all_come()

    def until_started(self) -> None:
        """There is a run, once what is kept is here."""
        self.begin()
        wait_until(lambda: self.phases() and self.played.list)

    def until_running(self) -> None:
        self.begin()
        self.phases()
        assert self.phases() == RUNNING

    def stop(self, *names: str) -> None:
        for name in names:
            insist(partial(self.runner.stop, self.assignment(name)))

    def try_again(self, *names: str) -> None:
        """Stop attempts, and begin the next ones."""
        for name in names:
            self.stop(name)
            self.attempts[name] += 1
            self.ensure(name)

    def forget(self) -> None:
        insist(lambda: self.runner.forget("job"))

    def restart(self, **settings: Any) -> None:
        """What follows knows only what is on the disk; these settings of the runner change."""
        self.runner.close()
        self.settings = replace(self.settings, **settings)
        self.runner = FlowerRunner(self.settings)
        self.runner.start()

    def hurry(self, within_s: float) -> None:
        """From now on a look waits so long only."""
        self.runner._settings = replace(self.runner._settings, reports_within_s=within_s)

    def reports(self) -> dict[str, TaskReport]:
        return {report.key.task[-1]: report for report in self.runner.reports(self.both())}

    def due(self) -> FlowerRunner:
        """The runner, which looks at once: a test does not wait between two steps."""
        for held in self.runner._jobs.values():
            if held.job is not None:
                held.job._next_look_s = held.job._next_start_s = 0.0
        return self.runner

    def phases(self) -> dict[str, Phase]:
        self.due()
        return {name: report.phase for name, report in self.reports().items()}

    def pass_by(self, seconds: float, step_s: float = 5.0) -> dict[str, TaskReport]:
        """Looks, one after the other, while time passes."""
        for _ in range(int(seconds / step_s)):
            self.clock.ahead_s += step_s
            self.phases()
        return self.reports()

    def messages(self) -> list[str]:
        return [report.message for report in self.reports().values()]

    def job(self) -> FlowerJob:
        job = self.runner._jobs["job"].job
        assert job is not None
        return job

    def setup(self) -> Setup:
        setup = Setup.load(self.state / "superlink/setup.json")
        assert setup is not None
        return setup

    def say(self, **status: object) -> None:
        self.flower.mkdir(exist_ok=True)
        Status.model_validate(status).save(self.flower / "status.json")
