"""The local engine: results in the order of the tasks, a process that dies costs its task only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from spotweave.training.checkpoint import load_state
from spotweave.training.config import UsageError
from spotweave.training.engine import (
    KEYS,
    RETRIES,
    EngineSettings,
    LocalEngine,
    LostTaskError,
    engine_settings,
)
from tests.training.commands import TINY_WORLD, Command, tiny
from tests.training.engines.works import Counting, DiesFirst, refused, squared, squared_late

SQUARES = [k * k for k in range(6)]
AUTO = {"address": "auto"}


@pytest.fixture(scope="module")
def two() -> Iterator[LocalEngine]:
    with LocalEngine(2) as engine:
        yield engine


def test_results_come_in_the_order_of_the_tasks_whatever_the_order_of_the_answers(two: LocalEngine) -> None:
    arrived: list[int] = []
    assert two.map(squared_late, range(6), arrived.append) == SQUARES
    assert sorted(arrived) == list(range(6))
    assert arrived != sorted(arrived)


def test_a_process_that_dies_costs_its_task_only(two: LocalEngine, tmp_path: Path) -> None:
    assert two.map(DiesFirst(tmp_path, deaths=1), range(6)) == SQUARES
    tries = [len(list(tmp_path.glob(f"{k}.*"))) for k in range(6)]
    assert tries == [1, 1, 2, 1, 1, 1]
    assert two.map(squared, range(6)) == SQUARES


def test_a_task_that_always_ends_its_process_is_told(two: LocalEngine, tmp_path: Path) -> None:
    with pytest.raises(LostTaskError, match=f"a task ended its process {RETRIES + 1} times"):
        two.map(DiesFirst(tmp_path, deaths=99), range(6))
    assert len(list(tmp_path.glob("2.*"))) == RETRIES + 1


def test_what_a_work_raises_is_raised_here(two: LocalEngine) -> None:
    with pytest.raises(ValueError, match="number 0\nis refused"):
        two.map(refused, range(6))


def test_a_worker_keeps_the_work_that_it_unpickled(two: LocalEngine) -> None:
    counted = [of_task for _ in range(2) for of_task in two.map(Counting(), range(4))]
    of_process = {pid: [tasks for other, tasks in counted if other == pid] for pid, _ in counted}
    assert len(of_process) <= 2
    # Each process counts on from task to task, in the second call too.
    assert all(sorted(tasks) == list(range(1, len(tasks) + 1)) for tasks in of_process.values())


def test_one_local_worker_is_this_process() -> None:
    with EngineSettings().open() as engine:
        assert engine is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "spark"}, "engine is 'spark'"),
        ({"workers": 0}, "workers is 0"),
        ({"ray": {"adress": "auto"}}, "ray.adress"),
        ({"ray": AUTO}, r"ray\.address=auto was given to engine=local"),
        ({"engine": "ray", "workers": 4, "ray": AUTO}, r"workers=4 was given with ray\.address=auto"),
    ],
)
def test_mistakes_are_told(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        engine_settings({"engine": "local", "workers": 1, "ray": {"address": None}, **changes}).open()


# The commands on two processes: the same files as in one.


TWO = ("workers=2",)


@pytest.mark.nightly
def test_a_training_on_two_processes_ends_with_the_same_bits(command: Command, tmp_path: Path) -> None:
    words = (
        *tiny("mtdqn", "bags"),
        "trainer.lanes=6",
        "trainer.episodes=12",
        "trainer.validation_episodes=6",
    )
    for name, more in (("one", ()), ("two", TWO)):
        command(*words, *more, f"out={tmp_path / name}").printed()
    one, two = (load_state(tmp_path / name / "state.pt")["trainer"] for name in ("one", "two"))
    assert one["episodes_done"] == two["episodes_done"] == 12
    assert one["average"].equal(two["average"])
    validations = [(tmp_path / name / "validation.csv").read_text() for name in ("one", "two")]
    assert validations[0] == validations[1]
    # The engine is no part of a run: it can be resumed with another one.
    saved = OmegaConf.load(tmp_path / "two" / "config.yaml")
    assert "seed" in saved
    assert not set(KEYS) & set(saved)


@pytest.mark.nightly
def test_a_comparison_on_two_processes_has_the_same_episodes(command: Command, tmp_path: Path) -> None:
    compare = replace(command, name="compare")
    words = ("+env=multicluster", *TINY_WORLD["multicluster"], "policies=[maf,random]", "episodes=7")
    for name, more in (("one", ()), ("two", TWO)):
        compare(*words, *more, f"out={tmp_path / name}").printed()
    one, two = ((tmp_path / name / "episodes.csv").read_text() for name in ("one", "two"))
    assert one == two
    assert len(one.splitlines()) == 1 + 2 * 7
