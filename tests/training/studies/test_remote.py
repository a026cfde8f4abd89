"""Whole trainings on a cluster: the same bits through Ctrl-C, a killed command and a lost node."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from omegaconf import OmegaConf

from spotweave.mistakes import EXIT_INTERRUPTED
from spotweave.training.checkpoint import RunDirectory
from spotweave.training.config import UsageError
from spotweave.training.engine import RETRIES, LostTaskError
from spotweave.training.studies.processes import (
    FAILED,
    ClusterTraining,
    NodeTraining,
    last_line,
    log_of,
    start_here,
    started_by,
)
from spotweave.training.studies.trained import RepeatSettings, Run, Training, planned_runs
from tests.training.commands import ROOT, python, start_process, tiny
from tests.training.engines.test_ray import PATIENT, STORE_BYTES
from tests.training.trainers.test_session import assert_same_files

LONG = ("trainer.episodes=400", "trainer.validation_every=150", "trainer.save_every_minutes=0.003")


def words(*more: str) -> list[str]:
    return [word for word in tiny("rl_fc") if "test_episodes" not in word] + list(more)


def planned(out: Path, *more: str) -> Run:
    """A run whose directory there is."""
    run = planned_runs(RepeatSettings({"a": Training(words(*more), [0])}, out=str(out)))[0]
    run.directory.path.mkdir(parents=True)
    return run


def test_trainings_are_processes_of_this_machine_unless_a_cluster_is_named() -> None:
    with started_by("local", None) as start:
        assert start is start_here


@pytest.mark.parametrize(
    ("engine", "address", "message"),
    [("ray", None, r"engine=ray needs ray\.address="), ("local", "auto", "was given to engine=local")],
)
def test_an_engine_and_an_address_belong_together(
    engine: Literal["local", "ray"], address: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message), started_by(engine, address):
        pass


class Node:
    """A node of this process, whose methods are called as those of Ray's actors are."""

    def __init__(self, cores: int, answer: Callable[[], int]) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.interrupts = 0
        self.reached = Method(self.pool, lambda: True) if cores else Method(self.pool, time.sleep, 1.0)
        self.train = Method(self.pool, lambda *_: answer())
        self.interrupt = Method(ThreadPoolExecutor(1), self._interrupt)

    def _interrupt(self) -> None:
        self.interrupts += 1


class Method:
    def __init__(self, pool: ThreadPoolExecutor, method: Callable[..., Any], *given: Any) -> None:
        self.remote = partial(pool.submit, method, *given)


class Cluster:
    """A cluster with one node."""

    def __init__(self, cores: int, answer: Callable[[], int]) -> None:
        self.node = Node(cores, answer)
        self.placed = 0

    def place(self, kind: Callable[[], Any], cores: int) -> Node:
        self.placed += 1
        return self.node

    def answer(self, asked: Future[Any]) -> Any | None:
        return asked.result() if asked.done() else None


def finished(training: ClusterTraining) -> int:
    while (code := training.poll()) is None:
        time.sleep(0.01)
    return code


def raised(error: Exception) -> Callable[[], int]:
    def answer() -> int:
        raise error

    return answer


def test_what_goes_wrong_around_a_training_is_one_line_of_its_log(tmp_path: Path) -> None:
    run = planned(tmp_path)
    cluster: Any = Cluster(1, raised(OSError("no space left\non the node")))
    assert finished(ClusterTraining(cluster, run, 1)) == FAILED
    assert last_line(log_of(run)) == "error: no space left on the node"
    assert cluster.placed == 1


def test_one_that_is_always_lost_has_failed(tmp_path: Path) -> None:
    run = planned(tmp_path)
    cluster: Any = Cluster(1, raised(LostTaskError("its worker or node died")))
    assert finished(ClusterTraining(cluster, run, 1)) == FAILED
    assert cluster.placed == RETRIES + 1
    told = log_of(run).read_text().splitlines()
    assert told[:-1] == ["its worker or node died: it goes on elsewhere from its latest save"] * RETRIES
    assert told[-1] == f"error: its worker or node died, {RETRIES + 1} times"


@pytest.mark.parametrize("lost", [False, True])
def test_ctrl_c_is_passed_on_outside_of_its_handler_and_a_loss_after_it_begins_nothing_new(
    lost: bool, tmp_path: Path
) -> None:
    def answer() -> int:
        until(lambda: cluster.node.interrupts > 0)
        if lost:
            raise LostTaskError("its worker or node died")
        return EXIT_INTERRUPTED

    cluster: Any = Cluster(1, answer)
    there = ClusterTraining(cluster, planned(tmp_path), 1)
    there._reached.result()
    there.send_signal(signal.SIGINT)
    assert cluster.node.interrupts == 0
    assert finished(there) == EXIT_INTERRUPTED
    assert (cluster.node.interrupts, cluster.placed) == (1, 1)


def test_ctrl_c_ends_a_training_that_waits_for_a_core(tmp_path: Path) -> None:
    cluster: Any = Cluster(0, lambda: 0)
    there = ClusterTraining(cluster, planned(tmp_path), 1)
    assert there.poll() is None
    there.send_signal(signal.SIGINT)
    assert there.poll() == EXIT_INTERRUPTED


def run_local(folder: Path, *more: str) -> RunDirectory:
    """The same training as a user begins it."""
    process = start_process(folder, *tiny("rl_fc"), *more, "out=local")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return RunDirectory(folder / "local")


def assert_same_run(one: RunDirectory, other: RunDirectory) -> None:
    """Everything but what tells the time and the command."""
    assert_same_files(one, other)
    for path in ("validation.csv", "provenance.json"):
        assert (one.path / path).read_bytes() == (other.path / path).read_bytes()
    kept = [OmegaConf.to_container(OmegaConf.load(run.config)) for run in (one, other)]
    for configuration in kept:
        assert isinstance(configuration, dict)
        del configuration["out"], configuration["command"]
    assert kept[0] == kept[1]
    assert other.done.is_file()


@pytest.mark.nightly
def test_ctrl_c_reaches_a_training_though_workers_of_ray_block_it(tmp_path: Path) -> None:
    run = planned(tmp_path, "trainer.episodes=1000000")
    node = NodeTraining()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with ThreadPoolExecutor(1) as pool:
            code = pool.submit(node.train, run, 1, str(ROOT))
            try:
                until(lambda: log_of(run).exists() and "gain" in log_of(run).read_text())
            finally:
                node.interrupt()
            assert code.result() == EXIT_INTERRUPTED
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert "interrupted; everything is saved" in log_of(run).read_text()
    assert run.begun


def test_a_training_that_was_interrupted_before_it_began_does_not_begin(tmp_path: Path) -> None:
    node = NodeTraining()
    node.interrupt()
    assert node.train(planned(tmp_path), 1, str(ROOT)) == EXIT_INTERRUPTED


def until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait; the limit is for a test that would hang."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def check_cluster(folder: str) -> None:
    """Ctrl-C, a killed command and the loss of the node, all in one training by `training/repeat.py`."""
    from ray.cluster_utils import Cluster as Nodes

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    head = {**node, "num_cpus": 0, "include_dashboard": False}
    cluster: Any = Nodes(initialize_head=True, head_node_args=head)
    run = RunDirectory(Path(folder, "runs", "a", "seed0"))
    overrides = ",".join(f"'{word}'" for word in words(*LONG))
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
        [trainer] = trainers(folder)
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
        assert process.returncode == EXIT_INTERRUPTED, out
        assert "interrupted; states are saved" in out
        assert trainers(folder) == []
        process, trainer = repeat()
        with process:
            process.kill()
        until(lambda: trainers(folder) == [])
        assert not run.done.exists()
        process, trainer = repeat()
        with process:
            cluster.add_node(**node)
            cluster.remove_node(first, allow_graceful=False)
            out, _ = process.communicate()
        assert process.returncode == 0, out
        assert "a seed 0: resumed" in out
        assert not trainer.is_running()
        assert "goes on elsewhere from its latest save" in (run.path / "training.log").read_text()
    finally:
        cluster.shutdown()


def waits_for(pid: int, signum: int) -> bool:
    """Whether a process that is held will get a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    [pending] = [line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:")]
    return bool(int(pending, 16) >> (signum - 1) & 1)


def trainers(folder: str) -> list[psutil.Process]:
    """Trainings that run from there."""
    everyone = psutil.process_iter(["cwd", "cmdline"])
    return [
        process
        for process in everyone
        if process.info["cwd"] == folder
        and any("training/train.py" in word for word in process.info["cmdline"])
    ]


@pytest.mark.extra
@pytest.mark.nightly
def test_a_training_on_a_cluster_is_the_same_through_ctrl_c_and_the_loss_of_its_node(tmp_path: Path) -> None:
    check = f"import tests.training.studies.test_remote as t; t.check_cluster({str(tmp_path)!r})"
    done = python("-c", check, **PATIENT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_run(run_local(tmp_path, *LONG), RunDirectory(tmp_path / "runs" / "a" / "seed0"))
