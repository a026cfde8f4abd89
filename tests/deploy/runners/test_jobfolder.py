"""A folder in which a hostile program writes too."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.runners.jobfolder import JobFolder, PoisonError

Trick = Callable[[Path, Path], object]
"""From the file and a secret outside of the job's folder."""


def terabyte(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 40)


TRICKS: dict[str, Trick] = {
    "a link out": lambda file, secret: file.symlink_to(secret),
    "a link to nothing": lambda file, secret: file.symlink_to(file.parent / "nothing"),
    "a link to a folder": lambda file, secret: file.symlink_to(secret.parent / "state"),
    "a link to itself": lambda file, secret: file.symlink_to(file),
    "a pipe": lambda file, secret: os.mkfifo(file),
    "a folder": lambda file, secret: file.mkdir(),
    "a socket": lambda file, secret: os.mknod(file, stat.S_IFSOCK),
    "a file of a terabyte": lambda file, secret: terabyte(file),
    "a file that is too large": lambda file, secret: file.write_bytes(b"x" * 101),
}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Of the scheduler."""
    (tmp_path / "state").mkdir()
    file = tmp_path / "secret"
    file.write_bytes(b"secret")
    return file


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work/flower").mkdir(parents=True)
    return tmp_path / "work"


def test_a_file_is_read_and_what_is_not_there_is_not(work: Path) -> None:
    (work / "flower/a").write_bytes(b"x" * 100)
    folder = JobFolder(work)
    assert folder.read("flower/a", 100) == b"x" * 100
    assert folder.read("flower/b", 100) is None
    assert folder.read("nowhere/b", 100) is None
    assert folder.names("flower", 1) == ["a"]
    assert folder.names("nowhere", 1) == []


@pytest.mark.parametrize("trick", TRICKS)
def test_nothing_but_a_small_file_is_read(work: Path, secret: Path, trick: str) -> None:
    TRICKS[trick](work / "flower/a", secret)
    with pytest.raises(PoisonError) as caught:
        JobFolder(work).read("flower/a", 100)
    assert "flower/a" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("trick", [name for name in TRICKS if name != "a folder"])
def test_no_trick_in_place_of_a_folder_leads_out(work: Path, secret: Path, trick: str) -> None:
    (work / "flower").rmdir()
    TRICKS[trick](work / "flower", secret)
    folder = JobFolder(work)
    for act in (
        lambda: folder.read("flower/a", 100),
        lambda: folder.names("flower", 10),
        lambda: folder.write("flower/a", b"ours"),
        lambda: folder.make("flower"),
        lambda: folder.copy_tail(secret, "flower/a", 10),
    ):
        with pytest.raises(PoisonError, match="flower"):
            act()
    assert secret.read_bytes() == b"secret"
    assert os.listdir(secret.parent / "state") == []


@pytest.mark.parametrize("trick", [name for name in TRICKS if name != "a folder"])
def test_what_is_written_takes_the_place_of_a_trick(work: Path, secret: Path, trick: str) -> None:
    TRICKS[trick](work / "flower/a", secret)
    JobFolder(work).write("flower/a", b"ours")
    assert JobFolder(work).read("flower/a", 100) == b"ours"
    assert secret.read_bytes() == b"secret"
    assert os.listdir(work / "flower") == ["a"]
    assert stat.S_IMODE((work / "flower/a").lstat().st_mode) == 0o600


def test_a_folder_in_the_way_is_poison_and_nothing_is_left(work: Path) -> None:
    (work / "flower/a").mkdir()
    with pytest.raises(PoisonError):
        JobFolder(work).write("flower/a", b"ours")
    assert os.listdir(work / "flower") == ["a"]


def test_a_folder_of_too_many_files_is_poison(work: Path) -> None:
    for number in range(4):
        (work / f"flower/{number}").touch()
    with pytest.raises(PoisonError, match="more than 3 files"):
        JobFolder(work).names("flower", 3)


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (3, 3), (5000, 1000)])
def test_the_end_of_a_log_is_copied(work: Path, tmp_path: Path, size: int, expected: int) -> None:
    log = tmp_path / "log"
    log.write_bytes(bytes(number % 256 for number in range(size)))
    JobFolder(work).copy_tail(log, "flower/log", 1000)
    assert (work / "flower/log").read_bytes() == log.read_bytes()[size - expected :]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_put_into_another_users_folder_is_theirs(work: Path) -> None:
    os.chown(work, 12345, 12346)
    (work / "flower").rmdir()
    JobFolder(work).write("flower/checkpoints/a", b"x")
    for name in ("flower", "flower/checkpoints", "flower/checkpoints/a"):
        found = (work / name).stat()
        assert (found.st_uid, found.st_gid) == (12345, 12346)
