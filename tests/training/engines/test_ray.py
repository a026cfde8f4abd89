"""Ray: the same bits on any number of workers, through a killed worker and a lost node."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spotweave.agents.rules import make_rule
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training import engine as engines
from spotweave.training.config import UsageError
from spotweave.training.engine import RETRIES, Engine, LostTaskError, RayEngine
from spotweave.training.evaluation.episodes import EpisodeResult, Suite, SuitePlayer
from tests.training.commands import python
from tests.training.engines.works import DiesFirst, refused, squared

STORE_BYTES = 80_000_000
PATIENT = {"RAY_raylet_start_wait_time_s": "300", "RAY_worker_register_timeout_seconds": "300"}
"""Ray's own limits of 30 and 60 s are too short for a busy machine."""
CONFIG = SliceWorldConfig(n_jobs=25, window=4)
SUITE = Suite("held out", "validation", seed=7, episodes=7)


class Gated(SliceWorld):
    """Leaves a mark whenever episodes begin, and then waits for the gate."""

    def __init__(self, folder: Path, lanes: int) -> None:
        super().__init__(CONFIG, lanes)
        self.folder = folder

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        (self.folder / f"{os.getpid()}.{time.monotonic_ns()}").touch()
        while not (self.folder / "gate").exists():
            time.sleep(0.02)
        super().reset(keys, lanes)


def results(engine: Engine | None, build: Callable[[int], SliceWorld]) -> list[list[EpisodeResult]]:
    """A suite, by two rules."""
    player = SuitePlayer([build], 3)
    return player.play(engine, [(0, make_rule("tuned")), (0, make_rule("maf"))], SUITE)


def alone(check: str, folder: Path) -> None:
    """Run a check of this file in a process of its own."""
    done = python("-c", f"import tests.training.engines.test_ray as t; t.{check}({str(folder)!r})", **PATIENT)
    assert done.returncode == 0, done.stdout + done.stderr


def check_tasks(folder: str) -> None:
    with RayEngine(None, 2) as engine:
        assert engine.workers == 2
        assert engine.map(squared, range(40)) == [k * k for k in range(40)]
        with pytest.raises(ValueError) as told:
            engine.map(refused, range(3))
        assert str(told.value) in [f"number {k}\nis refused" for k in range(3)]
        once, always = Path(folder, "once"), Path(folder, "always")
        for marks in (once, always):
            marks.mkdir()
        assert engine.map(DiesFirst(once, deaths=1), range(6)) == [k * k for k in range(6)]
        assert [len(list(once.glob(f"{k}.*"))) for k in range(6)] == [1, 1, 2, 1, 1, 1]
        with pytest.raises(LostTaskError, match=f"a task ended its worker {RETRIES + 1} times"):
            engine.map(DiesFirst(always, deaths=99), range(3))
        assert len(list(always.glob("2.*"))) == RETRIES + 1


def check_cluster(folder: str) -> None:
    """Grows a cluster node by node and plays on each, then loses a node while all of them play."""
    from ray.cluster_utils import Cluster

    gate = Path(folder, "gate")
    gate.touch()
    build = partial(Gated, Path(folder))
    expected = results(None, build)
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster: Any = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        with RayEngine(cluster.address, 1) as engine:
            for workers in (1, 2, 3):
                assert engine.workers == workers
                marks = set(Path(folder).iterdir())
                assert results(engine, build) == expected
                begun = len(set(Path(folder).iterdir()) - marks)
                added = cluster.add_node(**node)
            assert engine.workers == 4
            gate.unlink()
            marks = set(Path(folder).iterdir())

            def lose_a_node() -> None:
                while len(set(Path(folder).iterdir()) - marks) < 4:
                    time.sleep(0.05)
                cluster.remove_node(added, allow_graceful=False)
                gate.touch()

            loss = threading.Thread(target=lose_a_node)
            loss.start()
            assert results(engine, build) == expected
            loss.join()
        # What the lost node played is played again, and nothing else is.
        assert begun < len(set(Path(folder).iterdir()) - marks - {gate}) <= begun + 3
    finally:
        cluster.shutdown()


@pytest.mark.real
@pytest.mark.extra
def test_tasks_run_on_ray_and_a_killed_worker_costs_its_task_only(tmp_path: Path) -> None:
    alone("check_tasks", tmp_path)


@pytest.mark.extra
@pytest.mark.nightly
def test_episodes_are_the_same_on_any_cluster_and_through_the_loss_of_a_node(tmp_path: Path) -> None:
    alone("check_cluster", tmp_path)


def test_an_address_where_nothing_answers_is_told_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"no Ray cluster answers at ray\.address=127\.0\.0\.1:1 ") as told:
        RayEngine("127.0.0.1:1", 1)
    assert "\n" not in str(told.value)


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'spotweave\[rllib\]'"):
        RayEngine("auto", 1)
