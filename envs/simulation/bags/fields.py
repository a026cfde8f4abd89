"""Fields of JSON files, checked: each mistake is one line that names field, value and what was expected."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypeVar

from envs.simulation.bags.model import BagError

_Read = TypeVar("_Read")


def read_json(path: Path, build: Callable[[object], _Read]) -> _Read:
    """What `build` makes of a JSON file. Raises BagError, whose line begins with the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeats)
    except OSError as error:
        raise BagError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BagError(f"{path} is no JSON: {error}") from error
    try:
        return build(document)
    except BagError as error:
        raise BagError(f"{path}: {error}") from error


def require_object(
    owner: str, entry: object, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    """The entry, if it has exactly these keys."""
    if not isinstance(entry, dict):
        raise BagError(f'{owner} is {short(entry)}, expected {{"{(*required, *optional)[0]}": ...}}')
    for key in required:
        if key not in entry:
            raise BagError(f"{owner} lacks '{key}': expected {', '.join(required)}")
    for key in entry:
        if key not in required and key not in optional:
            raise BagError(
                f"{owner} has the unknown key {key!r}: expected {', '.join((*required, *optional))}"
            )
    return entry


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; of a key given twice Python would keep the last."""
    entry = dict(pairs)
    if len(entry) < len(pairs):
        repeated = next(key for key in entry if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {repeated!r} is given twice in one object")
    return entry


def require_named(owner: str, entry: object) -> Mapping[str, object]:
    """A non-empty object of named entries."""
    if not isinstance(entry, dict) or not entry:
        raise BagError(f'{owner} is {short(entry)}, expected at least one entry, {{"name": {{...}}}}')
    return entry


def require_list(entry: Mapping[str, Any], key: str) -> list[object]:
    """The list below a key."""
    if not isinstance(entry[key], list):
        raise BagError(f"{key} is {short(entry[key])}, expected a list")
    return list(entry[key])


def require_number(owner: str, value: object, above: float | None = None) -> float:
    """A finite number >= 0, or > `above`."""
    # True and False are numbers to Python, never to people.
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if 0 <= number < math.inf and (above is None or number > above):
            return number
    raise BagError(
        f"{owner} is {short(value)}, expected a number {'>= 0' if above is None else f'> {above:g}'}"
    )


def require_whole(owner: str, value: object, least: int) -> int:
    """A whole number >= `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BagError(f"{owner} is {short(value)}, expected a whole number >= {least}")
    return value


def require_text(owner: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise BagError(f"{owner} is {short(value)}, expected text")
    return value


def require_one_of(owner: str, value: object, choices: Iterable[str]) -> str:
    """One of some texts."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        raise BagError(f"{owner} is {short(value)}, expected one of {shown}")
    return value


def is_yes(owner: str, value: object) -> bool:
    """Whether a field that is "yes" or "no" is "yes"."""
    return require_one_of(owner, value, ("yes", "no")) == "yes"


def yes_no(value: bool) -> str:
    """How the files write a truth value."""
    return "yes" if value else "no"
