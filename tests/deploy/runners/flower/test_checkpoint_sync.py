"""Rounds away from the machine: kept after each, fetched before a run, whatever the store does."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from deploy.fl import checkpoints
from deploy.fl.checkpoints import Checkpoint, Setup, Status
from deploy.model.tasks import Phase
from deploy.objects.location import ConflictError, FolderObjects, Objects, ObjectsError
from deploy.runners.base import RunnerError
from deploy.runners.flower import checkpoint_sync
from deploy.runners.flower.checkpoint_sync import CheckpointSync, StoredRound, StoredRounds
from deploy.runners.flower.runner import FlowerRunner, FlowerSettings
from deploy.runners.jobfolder import JobFolder
from tests.deploy.runners.flower.test_job import Played, Stage, played
from tests.deploy.runners.flower.world import MEAN
from tests.deploy.runners.patience import insist

__all__ = ["played"]


def weights(number: int, value: float = 0.0) -> Checkpoint:
    return Checkpoint(number, {"weights": np.full(3, value + number)})


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

    def kept(self, job: str = "job") -> list[str]:
        return sorted(super().names(f"{job}/"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(checkpoint_sync, "_BACK_OFF_S", 0.001)
    monkeypatch.setattr(checkpoint_sync, "_BACK_OFF_MOST_S", 0.001)
    return Store(tmp_path / "store")


def until(true: Callable[[], object], patience_s: float = 60.0) -> None:
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def keeper_of(store: Objects) -> CheckpointSync:
    return CheckpointSync(StoredRounds(store, "job"), "job", 1 << 20)


def fetched(keeper: CheckpointSync, folder: Path) -> int:
    found: list[int] = []

    def ask() -> bool:
        latest = keeper.fetched(JobFolder(folder))
        found.extend([] if latest is None else [latest])
        return latest is not None

    until(ask)
    return found[0]


def put(store: Store, kept: StoredRound, value: float = 0.0) -> None:
    FolderObjects.put(store, f"job/{kept.name}", checkpoints.encode(weights(kept.round, value)))


def harm(store: Store, kept: StoredRound) -> None:
    path = store.folder / "job" / kept.name
    path.write_bytes(path.read_bytes()[:-1])


def test_names_say_run_and_round_and_the_latest_round_is_the_newest() -> None:
    assert StoredRound(round=7, run=2).name == "run-000002/round-000007.npz"
    assert sorted([StoredRound(3, 9), StoredRound(4, 1), StoredRound(4, 2)])[-1] == StoredRound(4, 2)


def test_the_last_two_rounds_stay_and_in_the_end_the_last(store: Store) -> None:
    rounds = StoredRounds(store, "job")
    for one in (
        StoredRound(1, 1),
        StoredRound(2, 1),
        StoredRound(3, 1),
        StoredRound(3, 2),
        StoredRound(4, 2),
    ):
        rounds.put(one, checkpoints.encode(weights(one.round)), last=False)
    assert rounds.all() == [StoredRound(4, 2), StoredRound(3, 2), StoredRound(3, 1)]
    put(store, StoredRound(9, 1))
    rounds.put(StoredRound(5, 2), checkpoints.encode(weights(5)), last=True)
    # What is later than that was not made by this run: it is left alone.
    assert rounds.all() == [StoredRound(9, 1), StoredRound(5, 2)]


def test_a_run_that_made_other_weights_has_another_name_and_the_same_run_cannot(store: Store) -> None:
    rounds = StoredRounds(store, "job")
    rounds.put(StoredRound(2, 1), checkpoints.encode(weights(2)), last=False)
    rounds.put(StoredRound(2, 2), checkpoints.encode(weights(2, 0.5)), last=False)
    with pytest.raises(ConflictError, match="with other content"):
        rounds.put(StoredRound(2, 2), checkpoints.encode(weights(2, 0.7)), last=False)
    found = rounds.newest(rounds.all(), after=1)
    assert found == (StoredRound(2, 2), checkpoints.encode(weights(2, 0.5)))


def test_broken_objects_are_passed_over(store: Store, tmp_path: Path) -> None:
    for one in (StoredRound(2, 1), StoredRound(3, 1), StoredRound(3, 2), StoredRound(4, 3)):
        put(store, one)
    harm(store, StoredRound(4, 3))
    harm(store, StoredRound(3, 2))
    # The next run's number is above that of the broken one too: nothing is in its way.
    assert fetched(keeper_of(store), tmp_path) == 3
    found = checkpoints.load(tmp_path / "flower/checkpoints")
    assert found is not None
    assert found.round == 3
    harm(store, StoredRound(3, 1))
    shutil.rmtree(tmp_path / "flower/checkpoints")
    fetched(keeper_of(store), tmp_path)
    found = checkpoints.load(tmp_path / "flower/checkpoints")
    assert found is not None
    assert found.round == 2


def test_only_what_is_newer_than_here_is_fetched_and_a_broken_one_here_is_replaced(
    store: Store, tmp_path: Path
) -> None:
    keeper, here = keeper_of(store), tmp_path / "flower/checkpoints"
    assert fetched(keeper, tmp_path) == 0
    assert checkpoints.load(here) is None
    put(store, StoredRound(3, 1), 0.25)
    checkpoints.save(here, weights(2))
    checkpoints.save(here, weights(3))
    assert fetched(keeper, tmp_path) == 1
    found = checkpoints.load(here)
    assert found is not None
    assert found.arrays["weights"][0] == 3.0
    path = here / "round-000003.npz"
    path.write_bytes(path.read_bytes()[:-1])
    fetched(keeper, tmp_path)
    found = checkpoints.load(here)
    assert found is not None
    assert (found.round, found.arrays["weights"][0]) == (3, 3.25)


def test_a_store_that_fails_is_asked_again_and_what_is_wrong_is_said(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, here = keeper_of(store), tmp_path / "flower/checkpoints"
    checkpoints.save(here, weights(1))
    store.down = "s3://b/a: AWS failed"
    until(lambda: keeper.keep(JobFolder(tmp_path), 1, 1, 4) or store.puts >= 3)
    assert keeper.problem == "checkpoints are not kept: s3://b/a: AWS failed"
    assert "job job: checkpoints are not kept: s3://b/a: AWS failed; again in" in caplog.text
    # StoredRounds that were completed meanwhile need not be put one by one.
    checkpoints.save(here, weights(2))
    checkpoints.save(here, weights(3))
    store.down = ""
    until(lambda: keeper.keep(JobFolder(tmp_path), 1, 3, 4))
    assert (keeper.kept, keeper.problem) == (3, "")
    assert store.kept()[-1:] == ["job/run-000001/round-000003.npz"]


def test_a_slow_store_keeps_nobody_waiting(store: Store, tmp_path: Path) -> None:
    import threading

    going, begun = threading.Event(), threading.Event()

    class Slow(Store):
        def put(self, name: str, content: bytes) -> None:
            begun.set()
            assert going.wait(60)
            super().put(name, content)

    slow = Slow(store.folder)
    keeper, here = keeper_of(slow), tmp_path / "flower/checkpoints"
    checkpoints.save(here, weights(1))
    assert not keeper.keep(JobFolder(tmp_path), 1, 1, 4)
    assert begun.wait(60)
    # One object at a time; and a run is not started on what is older than that.
    assert not keeper.keep(JobFolder(tmp_path), 1, 1, 4)
    assert keeper.fetched(JobFolder(tmp_path)) is None
    going.set()
    until(lambda: keeper.keep(JobFolder(tmp_path), 1, 1, 4))
    assert slow.puts == 1
    assert fetched(keeper, tmp_path) == 1


@pytest.fixture
def kept_stage(tmp_path: Path, played: Played, store: Store) -> Stage:
    shutil.copytree(MEAN, tmp_path / "work/mean")
    stage = Stage(tmp_path, played)
    stage.runner = FlowerRunner(FlowerSettings(tmp_path / "state", checkpoints=store))
    return stage


def start(stage: Stage, runs: int = 1) -> None:
    for name in ("a", "b"):
        stage.ensure(name)
    stage.phases()
    stage.played.here = set(stage.played.nodes.values())
    until(lambda: (stage.phases(), len(stage.played.list))[1] == runs)


def complete(stage: Stage, number: int, run: int = 1) -> None:
    checkpoints.save(stage.folder / "work/flower/checkpoints", weights(number))
    stage.say(run=run, completed=number)


def until_kept(stage: Stage, store: Store, name: str) -> None:
    until(lambda: (stage.phases(), name in store.kept())[1])


def test_each_round_is_kept_as_it_completes(kept_stage: Stage, store: Store) -> None:
    start(kept_stage)
    for number in (1, 2, 3):
        complete(kept_stage, number)
        until_kept(kept_stage, store, f"job/run-000001/round-{number:06d}.npz")
    report = kept_stage.runner.reports([kept_stage.assignment("a")])[0]
    assert report.phase is Phase.RUNNING
    until(lambda: kept_stage.runner.reports([kept_stage.assignment("a")])[0].details["kept_round"] == "3")
    assert store.kept() == [f"job/run-000001/round-00000{number}.npz" for number in (2, 3)]


def test_another_machine_goes_on_from_what_is_kept(kept_stage: Stage, played: Played, store: Store) -> None:
    start(kept_stage)
    complete(kept_stage, 2)
    until(lambda: (kept_stage.phases(), store.kept())[1])
    # It has neither the job's state nor its results; the app was sent again with the job.
    shutil.rmtree(kept_stage.folder / "state")
    shutil.rmtree(kept_stage.folder / "work/flower")
    played.alive, played.list, played.nodes, played.processes = False, [], {}, {}
    kept_stage.runner = FlowerRunner(FlowerSettings(kept_stage.folder / "state", checkpoints=store))
    kept_stage.runner.start()
    store.down = "s3://b/a: AWS cannot be reached"
    kept_stage.attempts = {"a": 2, "b": 2}
    with pytest.raises(AssertionError):
        until_started_within(kept_stage, 0.5)
    assert played.list == []
    assert "checkpoints cannot be fetched: s3://b/a: AWS cannot be reached" in kept_stage.messages()[0]
    store.down = ""
    start(kept_stage)
    setup = Setup.load(kept_stage.folder / "state/job/superlink/setup.json")
    assert setup is not None
    assert setup.run == 2
    found = checkpoints.load(kept_stage.folder / "work/flower/checkpoints")
    assert found is not None
    assert found.round == 2
    complete(kept_stage, 3, run=2)
    until_kept(kept_stage, store, "job/run-000002/round-000003.npz")


def until_started_within(stage: Stage, patience_s: float) -> None:
    for name in ("a", "b"):
        stage.ensure(name)
    stage.phases()
    stage.played.here = set(stage.played.nodes.values())
    until(lambda: (stage.phases(), stage.played.list)[1], patience_s)


def test_a_job_is_not_forgotten_before_its_result_is_kept(
    kept_stage: Stage, played: Played, store: Store
) -> None:
    start(kept_stage)
    complete(kept_stage, 3)
    until(lambda: (kept_stage.phases(), store.kept())[1])
    store.down = "s3://b/a: AWS failed"
    complete(kept_stage, 4)
    played.finish(True)
    assert kept_stage.phases() == {"a": Phase.SUCCEEDED, "b": Phase.SUCCEEDED}

    def forget() -> bool:
        try:
            kept_stage.runner.forget("job")
        except RunnerError:
            return False
        return True

    puts = store.puts
    until(lambda: forget() or store.puts > puts + 2)
    assert (kept_stage.folder / "state/job/job.json").exists()
    # Nor by a scheduler that was started again, and knows only what is on the disk.
    kept_stage.runner.close()
    kept_stage.runner = FlowerRunner(FlowerSettings(kept_stage.folder / "state", checkpoints=store))
    assert not forget()
    store.down = ""
    until(forget)
    assert store.kept() == ["job/run-000001/round-000004.npz"]
    assert not (kept_stage.folder / "state/job").exists()
    found = checkpoints.load(kept_stage.folder / "work/flower/checkpoints")
    assert found is not None
    assert found.round == 4


def test_a_job_that_did_not_succeed_is_forgotten_at_once(kept_stage: Stage, store: Store) -> None:
    start(kept_stage)
    complete(kept_stage, 1)
    until(lambda: (kept_stage.phases(), store.kept())[1])
    store.down = "s3://b/a: AWS failed"
    insist(lambda: kept_stage.runner.forget("job"))
    assert store.kept() == ["job/run-000001/round-000001.npz"]


def test_an_app_that_keeps_no_checkpoints_is_forgotten_too(kept_stage: Stage, played: Played) -> None:
    start(kept_stage)
    played.finish(True)
    kept_stage.phases()
    assert Status.load(kept_stage.folder / "work/flower/status.json") is None
    insist(lambda: kept_stage.runner.forget("job"))
    assert not (kept_stage.folder / "state/job").exists()
