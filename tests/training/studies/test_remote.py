"""Trainings as a whole on a cluster: what goes there, what is brought back, and what a loss costs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from omegaconf import OmegaConf

from agents.stored import load_policy_state
from tests.training.commands import ROOT, tiny
from tests.training.engines.test_ray import PATIENT, STORE_BYTES
from tests.training.trainers.test_resume import assert_same
from training.checkpoint import load_state
from training.config import INTERRUPTED, UsageError
from training.engines.engine import RETRIES, LostTaskError
from training.engines.settings import RaySettings
from training.run_directory import RunDirectory
from training.studies import remote
from training.studies.processes import last_line, log_of
from training.studies.remote import FAILED, ClusterTraining, News, NodeTraining
from training.studies.search import Search, TuneSettings, runs_of_best, searched
from training.studies.trained import RepeatSettings, Run, Training, planned_runs

LONG = ("trainer.episodes=400", "trainer.validation_every=150", "trainer.save_every_minutes=0.003")


def words(agent: str, *more: str) -> list[str]:
    return [word for word in tiny(agent) if "test_episodes" not in word] + list(more)


def planned(agent: str, out: Path, *more: str) -> Run:
    settings = RepeatSettings(
        {"a": Training(words(agent, *more), [0])}, str(out), engine="ray", ray=RaySettings("auto")
    )
    return planned_runs(settings)[0]


def test_every_run_goes_whole_to_a_node(tmp_path: Path) -> None:
    assert planned("rl_fc", tmp_path).cluster == "auto"
    local = RepeatSettings({"a": Training(words("rl_fc"), [0])}, str(tmp_path), ray=RaySettings("auto"))
    with pytest.raises(UsageError, match=r"ray\.address=auto was given to engine=local"):
        planned_runs(local)


def test_a_search_goes_where_it_is_told(tmp_path: Path) -> None:
    searches = {"a": Search(words("rl_fc"), {"trainer.gradient_steps": [2]})}
    settings = TuneSettings(searches, str(tmp_path), engine="ray", ray=RaySettings("auto"))
    [tried, _] = searched(settings)["a"]
    assert tried.run.cluster == "auto"
    assert [run.cluster for run in runs_of_best(settings, "a", tried)] == ["auto"] * 3


def test_no_cluster_is_looked_for_without_a_run_for_it(tmp_path: Path) -> None:
    settings = RepeatSettings({"a": Training(words("rl_fc"), [0])}, str(tmp_path))
    with remote.cluster_of(planned_runs(settings)) as cluster:
        assert cluster is None


class Script:
    """A node that answers as it is told; it takes the place of a `NodeTraining`."""

    def __init__(self, *answers: News | Exception) -> None:
        self.answers = list(answers)
        self.begun: list[dict[str, bytes]] = []
        self.interrupts = 0

    def begin(self, files: dict[str, bytes], threads: int) -> News:
        self.begun.append(files)
        return News()

    def news(self) -> News:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def interrupt(self) -> None:
        self.interrupts += 1


class Method:
    """A method that is called as Ray's are."""

    def __init__(self, pool: ThreadPoolExecutor, method: Callable[..., Any]) -> None:
        self.remote = partial(pool.submit, method)


class Handle:
    """An object whose methods are called as those of Ray's actors are."""

    def __init__(self, pool: ThreadPoolExecutor, there: Any) -> None:
        self.begin, self.news, self.interrupt = (
            Method(pool, method) for method in (there.begin, there.news, there.interrupt)
        )


class Cluster:
    """A cluster of this process: places what it is given, or a node that follows a script."""

    def __init__(self, script: Script | None = None) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.script = script
        self.placed: list[Any] = []
        self.lost = False

    def place(self, kind: Callable[[], Any], cores: int) -> Handle:
        self.placed.append(self.script or kind())
        return Handle(self.pool, self.placed[-1])

    def lose(self) -> None:
        """The latest node dies with all that runs on it."""
        self.placed[-1]._process.kill()
        self.lost = True

    def answer(self, asked: Future[Any]) -> Any | None:
        if self.lost:
            self.lost = False
            raise LostTaskError("its worker or node died (why)")
        return asked.result() if asked.done() else None


@pytest.fixture
def claim(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def begun(path: Path) -> Run:
    """A run with a state, and things that no node needs."""
    directory = RunDirectory(path / "run")
    (path / "run" / "tensorboard").mkdir(parents=True)
    for name in ("config.yaml", "state.pt", ".lock", "training.log"):
        (path / "run" / name).write_text(f"old {name}\n")
    return Run("a", 0, directory, (), cluster="auto")


def training(cluster: Cluster, run: Run, claim: IO[bytes]) -> ClusterTraining:
    return ClusterTraining(cluster, run, 1, claim)  # type: ignore[arg-type]


def finished(training: ClusterTraining) -> int:
    while (code := training.poll()) is None:
        time.sleep(0.01)
    return code


def locked(path: Path) -> bool:
    with path.open("ab") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_files_are_written_from_the_oldest_on_and_the_log_grows(
    tmp_path: Path, claim: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(remote, "write_bytes", lambda path, _: written.append(path.name))
    files = {"done.json": b"", "state.pt": b"", "policy.pt": b"", "tensorboard/events": b""}
    node = Script(News(b"one\n"), News(b"two\n", files, 0))
    run = begun(tmp_path)
    there = training(Cluster(node), run, claim)
    claim.close()
    assert locked(tmp_path / "lock")
    assert finished(there) == 0
    assert not locked(tmp_path / "lock")
    assert written == ["events", "policy.pt", "state.pt", "done.json"]
    assert log_of(run).read_text() == "old training.log\none\ntwo\n"
    assert node.begun == [{"config.yaml": b"old config.yaml\n", "state.pt": b"old state.pt\n"}]


def test_after_a_loss_it_goes_on_from_what_arrived(tmp_path: Path, claim: IO[bytes]) -> None:
    lost = LostTaskError("its worker or node died (why)")
    saves = News(files={"state.pt": b"new"})
    node = Script(*[lost] * RETRIES, saves, *[lost] * RETRIES, News(code=0))
    run = begun(tmp_path)
    assert finished(training(Cluster(node), run, claim)) == 0
    states = [files["state.pt"] for files in node.begun]
    assert states == [b"old state.pt\n"] * (RETRIES + 1) + [b"new"] * RETRIES
    assert last_line(log_of(run)).startswith("its worker or node died (why): it goes on elsewhere")


def test_one_that_is_always_lost_has_failed(tmp_path: Path, claim: IO[bytes]) -> None:
    node = Script(*[LostTaskError("its worker or node died (why)")] * (RETRIES + 1))
    run = begun(tmp_path)
    assert finished(training(Cluster(node), run, claim)) == FAILED
    assert last_line(log_of(run)) == (
        f"error: its worker or node died (why), {RETRIES + 1} times without a save in between"
    )


def test_what_goes_wrong_around_a_training_is_one_line_of_its_log(tmp_path: Path, claim: IO[bytes]) -> None:
    node = Script(OSError("no space left\non the node"))
    run = begun(tmp_path)
    cluster = Cluster(node)
    assert finished(training(cluster, run, claim)) == FAILED
    assert last_line(log_of(run)) == "error: no space left on the node"
    cluster.pool.shutdown()
    assert node.interrupts == 1


def test_ctrl_c_is_passed_on_outside_of_the_handler_and_ends_what_waits_for_a_core(
    tmp_path: Path, claim: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Script(News(b"x"), News(code=INTERRUPTED))
    cluster = Cluster(node)
    there = training(cluster, begun(tmp_path / "begun"), claim)
    while not there._begun:
        there.poll()
    there.send_signal(signal.SIGINT)
    assert node.interrupts == 0
    assert finished(there) == INTERRUPTED
    cluster.pool.shutdown()
    assert node.interrupts == 1

    waits = Cluster(Script())
    monkeypatch.setattr(waits, "answer", lambda _: None)
    waiting = training(waits, begun(tmp_path / "waits"), claim)
    assert waiting.poll() is None
    waiting.send_signal(signal.SIGINT)
    assert waiting.poll() == INTERRUPTED


def test_a_loss_after_ctrl_c_begins_nothing_new(tmp_path: Path, claim: IO[bytes]) -> None:
    node = Script(LostTaskError("its worker or node died (why)"))
    there = training(Cluster(node), begun(tmp_path), claim)
    while not there._begun:
        there.poll()
    there.send_signal(signal.SIGINT)
    assert finished(there) == INTERRUPTED
    assert len(node.begun) == 1


def test_the_end_and_the_state_are_read_before_what_they_depend_on(tmp_path: Path) -> None:
    node = NodeTraining()
    node._run, node._seen = RunDirectory(tmp_path), {}
    (tmp_path / "tensorboard").mkdir()
    names = ["a.csv", "done.json", "policy.pt", "state.pt", "tensorboard/events", ".state.pt.x.pt"]
    for name in names:
        (tmp_path / name).write_text(name)
    found = list(node._changed())
    assert found[:2] == ["done.json", "state.pt"]
    assert sorted(found[2:]) == ["a.csv", "policy.pt", "tensorboard/events"]
    assert node._changed() == {}
    (tmp_path / "a.csv").write_text("more")
    assert node._changed() == {"a.csv": b"more"}


def run_local(folder: Path, *more: str) -> RunDirectory:
    """The same training as a user begins it."""
    command = [sys.executable, str(ROOT / "training" / "train.py"), *tiny("rl_fc"), *more, "out=local"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return RunDirectory(folder / "local")


def assert_same_run(one: RunDirectory, other: RunDirectory) -> None:
    """Everything but what tells the time and the command."""
    for load, path in ((load_state, "state.pt"), (load_policy_state, "policy.pt")):
        states = [load(run.path / path) for run in (one, other)]
        for state in states:
            state.pop("seconds", None)
            state.pop("training", None)
        assert_same(states[0], states[1], path)
    for path in ("validation.csv", "provenance.json"):
        assert (one.path / path).read_bytes() == (other.path / path).read_bytes()
    kept = [OmegaConf.to_container(OmegaConf.load(run.config)) for run in (one, other)]
    for configuration in kept:
        assert isinstance(configuration, dict)
        del configuration["out"], configuration["command"]
    assert kept[0] == kept[1]
    assert other.done.is_file()


@pytest.mark.nightly
def test_a_training_on_a_node_that_is_lost_ends_with_the_same_bits(tmp_path: Path, claim: IO[bytes]) -> None:
    cluster = Cluster()
    run = planned("rl_fc", tmp_path, *LONG)
    run.directory.path.mkdir(parents=True)
    there = training(cluster, run, claim)
    while not run.directory.state.is_file():
        assert there.poll() is None, log_of(run).read_text()
    cluster.lose()
    assert finished(there) == 0, log_of(run).read_text()
    assert len(cluster.placed) == 2
    assert not cluster.placed[1]._scratch.exists()
    assert "goes on elsewhere" in log_of(run).read_text()
    assert run.finished
    assert_same_run(run_local(tmp_path, *LONG), run.directory)


@pytest.mark.nightly
def test_ctrl_c_reaches_a_training_though_workers_of_ray_block_it(tmp_path: Path) -> None:
    run = planned("rl_fc", tmp_path, "trainer.episodes=1000000")
    run.directory.path.mkdir(parents=True)
    remote._make_directory(run)
    node = NodeTraining()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        node.begin({"config.yaml": run.directory.config.read_bytes()}, 1)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert b"guiding rule" in node.news().log
    node.interrupt()
    news = [node.news()]
    while news[-1].code is None:
        news.append(node.news())
    assert news[-1].code == INTERRUPTED
    assert b"interrupted; everything is saved" in b"".join(one.log for one in news)
    assert any("state.pt" in one.files for one in news)


GUARDED = """
import signal
from training.studies.remote import _end_with_worker
guard = _end_with_worker()
print("guarded", flush=True)
signal.pause()
"""


@pytest.mark.real
def test_the_guard_kills_what_would_not_end_by_itself(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", GUARDED],
        cwd=scratch,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as trainer:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"guarded\n"
        trainer.stdin.close()
        try:
            assert trainer.wait(60.0) == -signal.SIGKILL
        finally:
            trainer.kill()
    until(lambda: not scratch.exists())


WORKER = """
import signal, sys
from pathlib import Path
from training.studies.remote import NodeTraining
node = NodeTraining()
node.begin({"config.yaml": Path(sys.argv[1]).read_bytes()}, 1)
print(node._process.pid, node._scratch, flush=True)
signal.pause()
"""


@pytest.mark.nightly
def test_a_training_ends_with_its_worker_and_leaves_nothing(tmp_path: Path) -> None:
    run = planned("rl_fc", tmp_path, "trainer.episodes=1000000")
    run.directory.path.mkdir(parents=True)
    remote._make_directory(run)
    command = [sys.executable, "-c", WORKER, str(run.directory.config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pid, scratch = worker.stdout.readline().split()
        trainer = psutil.Process(int(pid))
        until(lambda: "guiding rule" in Path(scratch, "log").read_text())
        worker.kill()
    until(lambda: not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE)
    until(lambda: not Path(scratch).exists())


def until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait; the limit is for a test that would hang."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def check_cluster(folder: str) -> None:
    """Ctrl-C, a killed command and the loss of the node, all in one training by `training/repeat.py`."""
    from ray.cluster_utils import Cluster as Nodes

    scratch = Path(folder, "scratch")
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    head = {**node, "num_cpus": 0, "include_dashboard": False}
    cluster: Any = Nodes(initialize_head=True, head_node_args=head)
    run = RunDirectory(Path(folder, "runs", "a", "seed0"))
    overrides = ",".join(f"'{word}'" for word in words("rl_fc", *LONG))
    command = [
        sys.executable,
        str(ROOT / "training" / "repeat.py"),
        f"+trainings.a={{overrides: [{overrides}], seeds: [0]}}",
        "out=runs",
        "engine=ray",
        f"ray.address={cluster.address}",
    ]

    def repeat() -> tuple[subprocess.Popen[str], psutil.Process]:
        """The command, once something new was saved, and its training, which is held."""
        saved = run.state.is_file() and run.state.stat().st_mtime_ns
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        until(lambda: run.state.is_file() and run.state.stat().st_mtime_ns != saved)
        [trainer] = [one for one in left_in(scratch) if isinstance(one, psutil.Process)]
        trainer.suspend()
        return process, trainer

    try:
        first = cluster.add_node(**node)
        process, trainer = repeat()
        with process:
            process.send_signal(signal.SIGINT)
            until(lambda: waits_for(trainer.pid, signal.SIGINT))
            trainer.resume()
            out, _ = process.communicate()
        assert process.returncode == INTERRUPTED, out
        assert "interrupted; states are saved" in out
        assert left_in(scratch) == []
        process, trainer = repeat()
        with process:
            process.kill()
        trainer.resume()
        until(lambda: left_in(scratch) == [])
        assert not run.done.exists()
        process, trainer = repeat()
        with process:
            cluster.add_node(**node)
            cluster.remove_node(first, allow_graceful=False)
            trainer.resume()
            out, _ = process.communicate()
        assert process.returncode == 0, out
        assert "a seed 0: resumed" in out
        assert "goes on elsewhere from its latest save" in (run.path / "training.log").read_text()
        until(lambda: left_in(scratch) == [])
    finally:
        cluster.shutdown()


def waits_for(pid: int, signum: int) -> bool:
    """Whether a process that is held will get a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    [pending] = [line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:")]
    return bool(int(pending, 16) >> (signum - 1) & 1)


def left_in(scratch: Path) -> list[Path | psutil.Process]:
    """Folders of trainings, and processes that work there."""
    everyone = psutil.process_iter(["cwd"])
    there = [process for process in everyone if str(process.info["cwd"]).startswith(f"{scratch}/spotweave-")]
    return [*scratch.glob("spotweave-*"), *there]


@pytest.mark.extra
@pytest.mark.nightly
def test_a_training_on_a_cluster_is_the_same_through_ctrl_c_and_the_loss_of_its_node(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    check = f"import tests.training.studies.test_remote as t; t.check_cluster({str(tmp_path)!r})"
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **PATIENT}
    # Ray's own folders have long names and hold sockets, whose paths must be short.
    environment |= {"TMPDIR": str(tmp_path / "scratch"), "RAY_TMPDIR": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", check],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_run(run_local(tmp_path, *LONG), RunDirectory(tmp_path / "runs" / "a" / "seed0"))
