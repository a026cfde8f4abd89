"""Files that people write: YAML that must be a mapping, and what is wrong with one in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from spotweave.documents import load

Positive = Annotated[FiniteFloat, Field(gt=0)]
NotNegative = Annotated[FiniteFloat, Field(ge=0)]


class ConfigError(ValueError):
    """A file cannot be used; one line that names the file and the key."""


class Part(BaseModel):
    """A part of a file. Unknown keys are refused: a mistyped one would silently leave a default in force."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class YamlFile(Part):
    """A whole file."""

    # of the file, which relative paths in it are relative to
    folder: Annotated[Path, Field(exclude=True)] = Path()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a YAML or JSON file.

        Raises ConfigError if it cannot be read, or a key is unknown, missing or wrong.
        """
        needed = ", ".join(name for name, field in cls.model_fields.items() if field.is_required())
        folder = path.parent.resolve()
        return load(
            path,
            lambda content: cls.model_validate({**require_mapping(content, needed), "folder": folder}),
            ConfigError,
        )


def require_mapping(content: object, expected: str) -> dict[str, Any]:
    """The content of a file, if it is a mapping; `expected` names its keys. Raises ConfigError."""
    if not isinstance(content, dict):
        raise ConfigError(f"expected a mapping with {expected}")
    return content


def terse_mistake(failure: ValidationError, whole: str = "the file") -> str:
    """One line: which key, or the whole, and what is wrong. Not what was given: that may be secret."""
    first = failure.errors(include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or whole}: {first['msg']}"
