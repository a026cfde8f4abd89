"""Metrics up to rounding, refusals in one line, and documents with one mistake."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest


def check(metrics: Mapping[str, float], **expected: float) -> None:
    """Some of the metrics are these, up to rounding."""
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


@contextmanager
def refused(error: type[Exception], *said: str) -> Iterator[None]:
    """What runs within is refused with this error, which says all this in one line."""
    with pytest.raises(error) as caught:
        yield
    for words in said:
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def place(entry: Any, key: str) -> int | str:
    return int(key) if isinstance(entry, list) else key


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the entry at a path of keys and places between "/" replaced; `...` takes it away."""
    changed = copy.deepcopy(document)
    *parents, last = path.split("/")
    entry: Any = changed
    for key in parents:
        entry = entry[place(entry, key)]
    if value is ...:
        del entry[place(entry, last)]
    else:
        entry[place(entry, last)] = value
    return changed
