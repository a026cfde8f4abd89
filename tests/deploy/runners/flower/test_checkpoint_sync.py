"""Rounds away from the machine: kept after each, fetched before a run, whatever the store does."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import Checkpoint, Status
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.objects.location import ConflictError, FolderObjects
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.flower.checkpoints import CheckpointSync, StoredRound, StoredRounds
from spotweave.deploy.runners.jobfolder import JobFolder
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.flower.stage import AWS_FAILED, SUCCEEDED, Stage, Store


def weights(number: int, value: float = 0.0) -> Checkpoint:
    return Checkpoint(number, {"weights": np.full(3, value + number)})


def keeper_of(store: Store) -> CheckpointSync:
    return CheckpointSync(StoredRounds(store, "job"), "job", 1 << 20)


def fetched(keeper: CheckpointSync, folder: Path) -> int:
    while (latest := keeper.fetched(JobFolder(folder))) is None:
        time.sleep(0.005)
    return latest


def newest(flower: Path) -> tuple[int, float]:
    """Round and weight of the newest checkpoint here."""
    found = checkpoints.load(flower / "checkpoints")
    assert found is not None
    return found.round, float(found.arrays["weights"][0])


def put(store: Store, kept: StoredRound, value: float = 0.0) -> None:
    FolderObjects.put(store, f"job/{kept.name}", checkpoints.encode(weights(kept.round, value)))


def harm(store: Store, kept: StoredRound) -> None:
    path = store.folder / "job" / kept.name
    path.write_bytes(path.read_bytes()[:-1])


def test_the_last_two_rounds_stay_and_in_the_end_the_last(store: Store) -> None:
    rounds = StoredRounds(store, "job")
    for number, run in ((1, 1), (2, 1), (3, 1), (3, 2), (4, 2)):
        rounds.put(StoredRound(number, run), checkpoints.encode(weights(number)), last=False)
    assert rounds.all() == [StoredRound(4, 2), StoredRound(3, 2), StoredRound(3, 1)]
    assert store.kept() == [[1, 3], [2, 3], [2, 4]], "runs and rounds, as their names say"
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
    assert newest(tmp_path / "flower")[0] == 3
    harm(store, StoredRound(3, 1))
    shutil.rmtree(tmp_path / "flower/checkpoints")
    fetched(keeper_of(store), tmp_path)
    assert newest(tmp_path / "flower")[0] == 2


def test_only_what_is_newer_or_broken_here_is_fetched(store: Store, tmp_path: Path) -> None:
    keeper, here = keeper_of(store), tmp_path / "flower/checkpoints"
    assert fetched(keeper, tmp_path) == 0
    assert checkpoints.load(here) is None
    put(store, StoredRound(3, 1), 0.25)
    checkpoints.save(here, weights(2))
    checkpoints.save(here, weights(3))
    assert fetched(keeper, tmp_path) == 1
    assert newest(tmp_path / "flower") == (3, 3.0)
    path = here / "round-000003.npz"
    path.write_bytes(path.read_bytes()[:-1])
    fetched(keeper, tmp_path)
    assert newest(tmp_path / "flower") == (3, 3.25)


def test_a_store_that_fails_is_asked_again_and_what_is_wrong_is_said(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, here = keeper_of(store), tmp_path / "flower/checkpoints"
    checkpoints.save(here, weights(1))
    store.down = AWS_FAILED
    wait_until(lambda: keeper.keep(JobFolder(tmp_path), 1, 1, 4) or store.puts >= 3)
    assert keeper.problem == f"checkpoints are not kept: {AWS_FAILED}"
    assert f"job job: checkpoints are not kept: {AWS_FAILED}; again in" in caplog.text
    # StoredRounds that were completed meanwhile need not be put one by one.
    checkpoints.save(here, weights(2))
    checkpoints.save(here, weights(3))
    store.down = ""
    wait_until(lambda: keeper.keep(JobFolder(tmp_path), 1, 3, 4))
    assert (keeper.kept, keeper.problem) == (3, "")
    assert store.kept()[-1] == [1, 3]


def test_a_slow_store_keeps_nobody_waiting(store: Store, tmp_path: Path) -> None:
    going, begun = threading.Event(), threading.Event()

    class Slow(Store):
        def put(self, name: str, content: bytes) -> None:
            begun.set()
            assert going.wait(60)
            super().put(name, content)

    slow = Slow(store.folder)
    keeper, folder = keeper_of(slow), JobFolder(tmp_path)
    checkpoints.save(tmp_path / "flower/checkpoints", weights(1))
    assert not keeper.keep(folder, 1, 1, 4)
    assert begun.wait(60)
    # One object at a time; and a run is not started on what is older than that.
    assert not keeper.keep(folder, 1, 1, 4)
    assert keeper.fetched(folder) is None
    going.set()
    wait_until(lambda: keeper.keep(folder, 1, 1, 4))
    assert slow.puts == 1
    assert fetched(keeper, tmp_path) == 1


@pytest.fixture
def kept_stage(fresh: Stage, store: Store) -> Stage:
    """Whose job has a run."""
    fresh.restart(checkpoints=store)
    fresh.until_started()
    return fresh


def complete(stage: Stage, number: int, run: int = 1) -> None:
    checkpoints.save(stage.flower / "checkpoints", weights(number))
    stage.say(run=run, completed=number)


def complete_and_keep(stage: Stage, store: Store, number: int, run: int = 1) -> None:
    complete(stage, number, run)
    wait_until(lambda: stage.phases() and [run, number] in store.kept())


def test_each_round_is_kept_as_it_completes(kept_stage: Stage, store: Store) -> None:
    for number in (1, 2, 3):
        complete_and_keep(kept_stage, store, number)
    assert kept_stage.reports()["a"].phase is Phase.RUNNING
    wait_until(lambda: kept_stage.reports()["a"].details["kept_round"] == "3")
    assert store.kept() == [[1, 2], [1, 3]]


def test_another_machine_goes_on_from_what_is_kept(kept_stage: Stage, store: Store) -> None:
    complete_and_keep(kept_stage, store, 2)
    # It has neither the job's state nor its results; the app was sent again with the job.
    shutil.rmtree(kept_stage.folder / "state")
    shutil.rmtree(kept_stage.flower)
    played = kept_stage.played
    played.alive, played.list, played.nodes, played.processes = False, [], {}, {}
    kept_stage.restart()
    store.down = AWS_FAILED
    kept_stage.attempts = {"a": 2, "b": 2}
    kept_stage.begin()
    reason = f"checkpoints cannot be fetched: {AWS_FAILED}"
    for _ in range(5):
        wait_until(lambda: kept_stage.phases() and reason in kept_stage.messages()[0])
        assert played.list == []
    store.down = ""
    kept_stage.until_started()
    assert kept_stage.setup().run == 2
    assert newest(kept_stage.flower)[0] == 2
    complete_and_keep(kept_stage, store, 3, run=2)


def test_a_job_is_not_forgotten_before_its_result_is_kept(kept_stage: Stage, store: Store) -> None:
    complete_and_keep(kept_stage, store, 3)
    store.down = AWS_FAILED
    complete(kept_stage, 4)
    kept_stage.played.finish(True)
    assert kept_stage.phases() == SUCCEEDED

    def forget() -> bool:
        try:
            kept_stage.runner.forget("job")
        except RunnerError:
            return False
        return True

    puts = store.puts
    wait_until(lambda: forget() or store.puts > puts + 2)
    assert (kept_stage.state / "job.json").exists()
    # Nor by a scheduler that was started again, and knows only what is on the disk.
    kept_stage.restart()
    assert not forget()
    store.down = ""
    wait_until(forget)
    assert store.kept() == [[1, 4]]
    assert not kept_stage.state.exists()
    assert newest(kept_stage.flower)[0] == 4


def test_a_job_that_did_not_succeed_is_forgotten_at_once(kept_stage: Stage, store: Store) -> None:
    complete_and_keep(kept_stage, store, 1)
    store.down = AWS_FAILED
    kept_stage.forget()
    assert store.kept() == [[1, 1]]


def test_an_app_that_keeps_no_checkpoints_is_forgotten_too(kept_stage: Stage) -> None:
    kept_stage.played.finish(True)
    kept_stage.phases()
    assert Status.load(kept_stage.flower / "status.json") is None
    kept_stage.forget()
    assert not kept_stage.state.exists()
