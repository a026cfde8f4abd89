"""Fixtures of the federated commands' tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Callable[[object], str]:
    """Writes a document, or a text as it stands, and gives the file's name."""

    def write(content: object) -> str:
        path = tmp_path / "document.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write
