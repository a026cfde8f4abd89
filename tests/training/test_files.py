"""Files are whole or not there at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from spotweave.documents import DocumentError, read_document
from spotweave.files import write_bytes
from spotweave.training.files import (
    WriteError,
    prepare_directory,
    replacing,
    write_csv,
    write_json,
    write_text,
)


def listing(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    write_text(target, "old")
    write_text(target, "new é")
    assert target.read_text(encoding="utf-8") == "new é"
    assert listing(tmp_path) == ["result.txt"]


def test_new_files_get_ordinary_permissions(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    write_text(tmp_path / "ours", "x")
    assert (tmp_path / "ours").stat().st_mode == ordinary.stat().st_mode


@pytest.mark.parametrize(
    ("ended_by", "told", "message"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            WriteError,
            "cannot write .*result.json: No space left on device.*free some",
        ),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_a_writer_that_is_ended_leaves_the_old_file_and_no_litter(
    tmp_path: Path, ended_by: BaseException, told: type[BaseException], message: str
) -> None:
    target = tmp_path / "result.json"
    write_text(target, "old")

    def write() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise ended_by

    with pytest.raises(told, match=message):
        write()
    assert target.read_text() == "old"
    assert listing(tmp_path) == ["result.json"]


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with (
        pytest.raises(WriteError, match="No space left on device"),
        replacing(tmp_path / "never-written"),
        open("/dev/full", "w") as full,
    ):
        full.write("x")
    assert listing(tmp_path) == []


def test_a_missing_directory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No such file or directory"):
        write_text(tmp_path / "missing" / "x.txt", "x")


def test_prepare_directory_creates_and_proves(tmp_path: Path) -> None:
    assert prepare_directory(tmp_path / "a" / "b").is_dir()
    assert listing(tmp_path / "a" / "b") == []


def test_prepare_directory_refuses_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(WriteError, match=r"cannot write into .*taken: .*out=results"):
        prepare_directory(tmp_path / "taken")
    with pytest.raises(WriteError, match="Not a directory"):
        prepare_directory(tmp_path / "taken" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_prepare_directory_refuses_what_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match="Permission denied"):
        prepare_directory(tmp_path)
    tmp_path.chmod(0o700)


def test_json_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 0.1, "y": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 0.1, "y": [1, None]}
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text())["x"] == 0.1


def test_csv_floats_read_back_exactly(tmp_path: Path) -> None:
    value = 0.1 + 0.2
    write_csv(tmp_path / "a.csv", ["name", "value"], [["a,b", value]])
    assert (tmp_path / "a.csv").read_text() == f'name,value\n"a,b",{value!r}\n'


def test_of_several_writers_the_first_wins_where_nothing_may_be_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "key"
    write_bytes(target, b"first", mode=0o600, overwrite=False)
    with pytest.raises(FileExistsError):
        write_bytes(target, b"second", mode=0o600, overwrite=False)
    assert target.read_bytes() == b"first"
    assert target.stat().st_mode & 0o777 == 0o600
    assert listing(tmp_path) == ["key"]


# Files of users are read as they stand.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on: 1\nno: 2\n1: 3\nyes: 4\n", {"on": 1, "no": 2, "1": 3, "yes": 4}),
        ("a: 1e-3\nb: [1.5, yes]\n", {"a": 0.001, "b": [1.5, True]}),
        ("run: echo ${HOME} ${a.b(}\n", {"run": "echo ${HOME} ${a.b(}"}),
        ('{"a": "${x}", "1": [1, 2]}', {"a": "${x}", "1": [1, 2]}),
        ("{a: 1, on: 2}", {"a": 1, "on": 2}),
        (
            "base: &b {x: 1, y: 1}\nmine:\n  <<: *b\n  y: 2\n",
            {"base": {"x": 1, "y": 1}, "mine": {"x": 1, "y": 2}},
        ),
        ("a: &a {<<: {x: 1}, x: 2}\nb: *a\nc: *a\n", {"a": {"x": 2}, "b": {"x": 2}, "c": {"x": 2}}),
        ("", None),
    ],
)
def test_keys_are_text_and_values_are_data(tmp_path: Path, text: str, expected: Any) -> None:
    (tmp_path / "file").write_text(text)
    assert read_document(tmp_path / "file") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "file: the key 'a' is given twice (line 3): keep one"),
        ("steps:\n  1: x\n  1: y\n", "file: the key '1' is given twice (line 3): keep one"),
        ('{"a": {"b": 1, "b": 2}}', "file: the key 'b' is given twice: keep one"),
        ("[1, 2]: x\n", "file: a key is no text (line 1)"),
        ("a: [", "file is not YAML: "),
        ("[" * 100_000, "file is not YAML: "),
    ],
)
def test_what_is_no_document_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(DocumentError) as refused:
        read_document(tmp_path / "file")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
