"""The reference of the job file is that of the models."""

from __future__ import annotations

from pathlib import Path

from deploy.model.reference import reference

PAGE = Path(__file__).resolve().parents[3] / "docs" / "job-file.md"


def test_the_page_is_as_the_models_are() -> None:
    found = PAGE.read_text(encoding="utf-8")
    assert found == reference(), "stale: python -m deploy.model.reference > docs/job-file.md"


def test_every_key_has_a_meaning() -> None:
    rows = [
        row.strip("| ").split(" | ") for row in reference().splitlines() if row.startswith(("| `", "| **`"))
    ]
    assert len(rows) > 60
    assert [row[0] for row in rows if len(row) < 2 or row[1].strip()[:1] in ("(", ".")] == []
