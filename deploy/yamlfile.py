"""Files that people write: YAML that must be a mapping, and what is wrong with one in a line."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

_LONGEST_PLACE = 200


def read_mapping(path: Path, error: type[ValueError], expected: str) -> dict[str, Any]:
    """The mapping that a YAML (or JSON) file holds.

    Args:
        path: of the file.
        error: raised if it cannot be read, with one line.
        expected: names of its keys, for that line.
    """
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise error(f"cannot read {path}: {failure.strerror}") from failure
    except (yaml.YAMLError, UnicodeDecodeError) as failure:
        raise error(f"{path} is not YAML: {' '.join(str(failure).split())}") from failure
    if not isinstance(content, dict):
        raise error(f"{path}: expected a mapping with {expected}")
    return content


def first_mistake(failure: ValidationError) -> str:
    """One line for people: which key, what is wrong with it, what was given."""
    # A mistyped key explains why another one is missing.
    first = min(failure.errors(), key=lambda one: one["type"] != "extra_forbidden")
    message = first["msg"].removeprefix("Value error, ")
    where = ".".join(str(part) for part in first["loc"])
    if not where:
        return message
    given = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
    where = where if len(where) <= _LONGEST_PLACE else where[:_LONGEST_PLACE] + "…"
    return f"{where}: {message[:1].lower()}{message[1:]}{given}"
