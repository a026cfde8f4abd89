"""YAML and JSON files of users, read as they stand and checked by pydantic.

Keys are text, whatever YAML 1.1 takes them for (`on`, `no`, `1`). A key that is given twice is refused,
because one of the two would be lost. Nothing in them is an interpolation.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

_LONGEST_PLACE = 200
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

Number = Annotated[FiniteFloat, Field(ge=0)]
Positive = Annotated[FiniteFloat, Field(gt=0)]


class DocumentError(ValueError):
    """A file holds no document, or a wrong one; one line."""


class StrictModel(BaseModel):
    """A part of a document."""

    # A mistyped key would silently leave a default in force.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own: set[str] = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError(f"a key is no text (line {line})")
            if key.value in own:
                raise DocumentError(f"the key {key.value!r} is given twice (line {line}): keep one")
            own.add(key.value)
        # What `<<` brings may be given again: the mapping's own keys come later. The node stays as it is.
        whole = yaml.MappingNode(node.tag, list(node.value), node.start_mark, node.end_mark)
        self.flatten_mapping(whole)
        return {key.value: self.construct_object(value, deep=True) for key, value in whole.value}


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    return loader.construct_mapping(node)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
# YAML 1.1 takes 1e-3 for a text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(f"the key {twice!r} is given twice: keep one")
    return found


def read_document(path: Path) -> Any:
    """What a YAML or JSON file holds.

    Raises:
        DocumentError: if it is neither, or gives a key twice; one line.
        OSError: if it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip()[:1] in ("{", "["):
            try:
                # Which is YAML too, for a parser that takes a thousand times as long.
                return json.loads(text, object_pairs_hook=_once)
            except json.JSONDecodeError:
                pass
        return yaml.load(text, _Loader)
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{path} is not YAML: {' '.join(str(error).split())}") from error


def load(path: Path, build: Callable[[Any], T], failure: type[ValueError]) -> T:
    """What `build` makes of the document in a file.

    Raises:
        failure: if the file cannot be read, or `build` raises a ValueError, such as pydantic's; one line that
            names the file.
    """
    try:
        document = read_document(path)
    except OSError as error:
        raise failure(f"cannot read {path}: {error.strerror or error}") from error
    except DocumentError as error:
        raise failure(str(error)) from error
    try:
        return build(document)
    except ValidationError as error:
        raise failure(f"{path}: {first_mistake(error, document)}") from error
    except ValueError as error:
        raise failure(f"{path}: {error}") from error


def checked(model: type[M], document: object, failure: type[ValueError] = DocumentError) -> M:
    """What a document holds, if it is as the model says.

    Raises:
        failure: one line: which key, what was given and what is expected.
    """
    try:
        # Through JSON, in which a list may be a tuple and text a member of an enumeration.
        return model.model_validate_json(json.dumps(document))
    except TypeError as error:
        raise failure(f"it holds a value that is not plain text or a number: {error}") from error
    except ValidationError as error:
        raise failure(first_mistake(error, document)) from error


def first_mistake(found: ValidationError, document: object = None) -> str:
    """One line for people: which key, what is wrong with it, what was given.

    Args:
        found: by pydantic.
        document: what it was given; entries of its lists are called by their own names.
    """
    # A mistyped key explains why another one is missing.
    first = min(found.errors(), key=lambda one: one["type"] not in _UNKNOWN)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in _UNKNOWN:
        message = "unknown key: remove it or correct its spelling"
    where = ".".join(_steps(first["loc"], document))
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValueError) and (not where or type(cause) is not ValueError):
        return message  # an error of our own says where
    where = where or "the whole"
    given = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
    where = where if len(where) <= _LONGEST_PLACE else where[:_LONGEST_PLACE] + "…"
    return f"{where}: {message[:1].lower()}{message[1:]}{given}"


def _steps(place: tuple[int | str, ...], document: Any) -> Iterator[str]:
    for step in place:
        try:
            document = document[step]
        except (TypeError, LookupError):
            document = None
        named = isinstance(step, int) and isinstance(document, dict) and isinstance(document.get("name"), str)
        yield document["name"] if named else str(step)
