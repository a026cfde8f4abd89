"""Folders of jobs that ended long ago are removed: those and nothing else, whatever is in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy import pruning
from deploy.model.clock import VirtualClock
from deploy.model.jobs import JobState
from deploy.pruning import Pruning
from deploy.store.folders import Retention
from deploy.store.store import Store
from tests.deploy.hostile import dig
from tests.deploy.store.cases import add_job
from tests.deploy.store.conftest import NOW

DAY_S = 86_400.0


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def keep(store: Store, jobs: Path, job_id: str, ended_s: float | None = NOW) -> Path:
    add_job(store, job_id)
    with store.transaction():
        store.folders.add(job_id, "ana", 100)
        if ended_s is not None:
            store.jobs.set_state(job_id, JobState.SUCCEEDED, ended_s)
    (jobs / job_id / "logs").mkdir(parents=True)
    (jobs / job_id / "logs" / "driver.log").write_text("a line\n")
    return jobs / job_id


def later(store: Store, jobs: Path, days: float = 31.0) -> Pruning:
    return Pruning(store, jobs, VirtualClock(NOW + days * DAY_S), Retention(folders=30.0))


def test_what_ended_long_ago_goes_and_what_lives_or_ended_lately_stays(store: Store, jobs: Path) -> None:
    keep(store, jobs, "old")
    keep(store, jobs, "late", NOW + 5 * DAY_S)
    keep(store, jobs, "live", None)
    assert store.folders.held("ana", NOW).uploaded_bytes == 300
    once = later(store, jobs)
    assert (once.prune(), once.prune()) == (1, 0)
    assert sorted(path.name for path in jobs.iterdir()) == ["late", "live"]
    assert store.folders.held("ana", NOW).uploaded_bytes == 200
    assert store.jobs.get("old").state is JobState.SUCCEEDED, "the books are kept"


def test_links_are_removed_and_not_followed(store: Store, jobs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (outside / "kept.txt").touch()
    folder = keep(store, jobs, "linked")
    (folder / "folder").symlink_to(outside)
    (folder / "logs" / "file").symlink_to(outside / "kept.txt")
    swapped = keep(store, jobs, "swapped")
    subprocess.run(["rm", "-r", swapped], check=True)
    swapped.symlink_to(outside)
    assert later(store, jobs).prune() == 2
    assert list(jobs.iterdir()) == []
    assert [path.name for path in outside.iterdir()] == ["kept.txt"]
    assert outside.stat().st_mode & 0o777 == 0o500


def test_no_permissions_and_no_depth_keep_a_folder(store: Store, jobs: Path) -> None:
    folder = keep(store, jobs, "stubborn")
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner").chmod(0)
    (folder / "closed").chmod(0)
    dig(folder, 3000)
    assert later(store, jobs).prune() == 1
    assert list(jobs.iterdir()) == []


def test_little_goes_at_a_time(store: Store, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "_MOST", 2)
    for number in range(5):
        keep(store, jobs, f"old-{number}", NOW + number)
    once = later(store, jobs)
    assert [once.prune() for _ in range(4)] == [2, 2, 1, 0]


def test_one_that_cannot_be_removed_keeps_no_other(
    store: Store, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_MOST", 1)
    keep(store, jobs, "stuck", NOW)
    keep(store, jobs, "other", NOW + 1)
    remove = Pruning._remove
    with monkeypatch.context() as patched:
        patched.setattr(Pruning, "_remove", lambda self, at: "stuck" not in at.name and remove(self, at))
        once = later(store, jobs)
        assert [once.prune() for _ in range(3)] == [0, 1, 0]
        assert store.folders.due(NOW + 40 * DAY_S, 9) == ["stuck"]
    assert later(store, jobs).prune() == 1, "after a start"
    assert list(jobs.iterdir()) == []


def test_what_a_crash_left_half_removed_goes(store: Store, jobs: Path) -> None:
    folder = keep(store, jobs, "half")
    folder.rename(jobs / ".removed-half")
    assert later(store, jobs).prune() == 1
    assert list(jobs.iterdir()) == []
    assert store.folders.due(NOW + 40 * DAY_S, 9) == []


def test_where_nothing_was_ever_submitted_there_is_nothing_to_do(store: Store, jobs: Path) -> None:
    jobs.rmdir()
    one = later(store, jobs)
    assert one.prune() == 0
    one.start()
    one.close()
