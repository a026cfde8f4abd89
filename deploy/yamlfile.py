"""Files that people write: YAML that must be a mapping, and what is wrong with one in a line."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spotweave.documents import DocumentError, read_document

_LONGEST_PLACE = 200


class ConfigError(ValueError):
    """A file cannot be used; one line that names the file and the key."""


class Part(BaseModel):
    """A part of a file. Unknown keys are refused: a mistyped one would silently leave a default in force."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class YamlFile(Part):
    """A whole file.

    Attributes:
        folder: of the file, which relative paths in it are relative to.
    """

    folder: Annotated[Path, Field(exclude=True)] = Path()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a YAML or JSON file.

        Raises:
            ConfigError: if it cannot be read, or a key is unknown, missing or wrong.
        """
        needed = ", ".join(name for name, field in cls.model_fields.items() if field.is_required())
        content = read_mapping(path, needed)
        try:
            return cls.model_validate({**content, "folder": path.parent.resolve()})
        except ValidationError as error:
            raise ConfigError(f"{path}: {first_mistake(error)}") from error


def read_mapping(path: Path, expected: str) -> dict[str, Any]:
    """The mapping that a YAML (or JSON) file holds.

    Args:
        path: of the file.
        expected: names of its keys, for the error.

    Raises:
        ConfigError: if it cannot be read, or holds something else.
    """
    try:
        content: Any = read_document(path)
    except OSError as failure:
        raise ConfigError(f"cannot read {path}: {failure.strerror}") from failure
    except DocumentError as failure:
        raise ConfigError(str(failure)) from failure
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping with {expected}")
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


def terse_mistake(failure: ValidationError, whole: str = "the file") -> str:
    """One line: which key, or the whole, and what is wrong. Not what was given: that may be secret."""
    first = failure.errors(include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or whole}: {first['msg']}"
