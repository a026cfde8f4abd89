"""Files of users are read as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spotweave.documents import DocumentError, read_document


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
