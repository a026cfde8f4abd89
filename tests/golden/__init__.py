"""Golden files: what the program answers today, in text, so that a change of behaviour shows as a diff.

`python -m tests.golden [SECTION ...]` writes them. The sections ask through registries, public entry points,
commands and HTTP, not through internals, because files are expected to move beneath them.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from pkgutil import resolve_name

FOLDER = Path(__file__).resolve().parent
SECTIONS = {
    "episodes": "tests.golden.worlds:episodes",
    "decisions": "tests.golden.worlds:decisions",
    "stories": "tests.golden.stories:stories",
    "http": "tests.golden.http:http",
    "commands": "tests.golden.commands:commands",
}
"""What makes the lines of each file."""


def golden_file(section: str) -> Path:
    return FOLDER / f"{section}.txt"


def lines_of(section: str) -> list[str]:
    """What the program answers now."""
    made: list[str] = resolve_name(SECTIONS[section])()
    return made


def differences(section: str, now: list[str]) -> list[str]:
    """The lines that the file has and the program no longer says (-), and the other way round (+)."""
    path = golden_file(section)
    committed = path.read_text("utf-8").splitlines() if path.is_file() else []
    compared = difflib.unified_diff(committed, now, n=0, lineterm="")
    return [line for line in compared if not line.startswith(("---", "+++"))]
