"""Copies that are cut off, corrupted or not wanted any more."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from deploy.runners.base import RunnerError
from deploy.runners.jobfolder import JobFolder, PoisonError
from deploy.runners.workflow.digests import Part, digest_of
from deploy.runners.workflow.files import Mover

MIB = 1 << 20


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    source, job = tmp_path / "source", tmp_path / "job"
    for place in (source, job):
        place.mkdir()
    (source / "big").write_bytes(bytes(range(256)) * (5 * MIB // 256))
    return source, job


def test_a_digest_names_every_file_and_follows_no_link(places: tuple[Path, Path]) -> None:
    source, _ = places
    (source / "folder" / "below").mkdir(parents=True)
    (source / "folder" / "a").write_text("abc")
    (source / "folder" / "below" / "b").write_text("")
    # FIPS 180-2, appendix B.1, and of nothing.
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of(source, "folder") == {
        "a": Part(size=3, sha256=abc),
        "below/b": Part(size=0, sha256=empty),
    }
    assert digest_of(source, "folder/a") == {"": Part(size=3, sha256=abc)}
    for link, to in (("folder/c", "a"), ("folder/d", "below"), ("e", "folder")):
        (source / link).symlink_to(to)
        with pytest.raises(PoisonError, match="is a link"):
            digest_of(source, "e" if link == "e" else "folder")
        (source / link).unlink()


def test_a_copy_that_was_cut_off_goes_on_where_it_was(places: tuple[Path, Path]) -> None:
    source, job = places
    digest = digest_of(source, "big")
    left = [True, True, False]
    cut = Mover(JobFolder(job), lambda: left.pop(0))
    with pytest.raises(RunnerError, match="not wanted any more"):
        cut.bring(source, "big", "there/big", digest)
    assert cut.moved_bytes == 2 * MIB
    assert not (job / "there").exists()
    # As after a SIGKILL: another process, which finds what is on the disk. 2 of 5 MiB are there.
    again = Mover(JobFolder(job), lambda: True)
    again.bring(source, "big", "there/big", digest)
    assert again.moved_bytes == 3 * MIB
    assert (job / "there" / "big").read_bytes() == (source / "big").read_bytes()
    assert list((job / "workspace" / "moving").iterdir()) == []
    # It is there: nothing is moved.
    third = Mover(JobFolder(job), lambda: True)
    third.bring(source, "big", "there/big", digest)
    assert third.moved_bytes == 0


def test_a_part_that_was_corrupted_is_copied_again_from_its_beginning(places: tuple[Path, Path]) -> None:
    source, job = places
    digest = digest_of(source, "big")
    left = [True, True, False]
    with pytest.raises(RunnerError):
        Mover(JobFolder(job), lambda: left.pop(0)).bring(source, "big", "there/big", digest)
    (partial,) = (job / "workspace" / "moving").iterdir()
    partial.write_bytes(b"x" + partial.read_bytes()[1:])
    again = Mover(JobFolder(job), lambda: True)
    again.bring(source, "big", "there/big", digest)
    # The other 3 MiB, the wrong checksum, and all 5 once more.
    assert again.moved_bytes == 8 * MIB
    found = hashlib.sha256((job / "there" / "big").read_bytes()).hexdigest()
    assert found == digest[""].sha256
    # The same where the whole copy is corrupted later.
    (job / "there" / "big").write_bytes(b"y" + (job / "there" / "big").read_bytes()[1:])
    Mover(JobFolder(job), lambda: True).bring(source, "big", "there/big", digest)
    assert digest_of(job, "there/big") == digest


def test_a_source_that_changed_is_refused_and_nothing_takes_its_place(places: tuple[Path, Path]) -> None:
    source, job = places
    digest = digest_of(source, "big")
    (source / "big").write_bytes(b"other")
    with pytest.raises(RunnerError, match="big is not what was written"):
        Mover(JobFolder(job), lambda: True).bring(source, "big", "there/big", digest)
    assert not (job / "there").exists()


def test_a_jobs_program_cannot_have_other_files_written(places: tuple[Path, Path], tmp_path: Path) -> None:
    source, job = places
    (tmp_path / "elsewhere").mkdir()
    (job / "there").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((PoisonError, OSError)):
        Mover(JobFolder(job), lambda: True).bring(source, "big", "there/big", digest_of(source, "big"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
