"""Rows that were decoded before: the loop reads the same thousands in each pass, and few of them change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from sqlalchemy import Row

MOST = 5_000
"""Rows that are kept of one table."""
T = TypeVar("T")


class Decoded(Generic[T]):
    """What rows of a table were decoded to, by their key, as long as they are the same.

    Args:
        decode: of a row; what it returns must not be changed by anyone.
    """

    def __init__(self, decode: Callable[[Row[Any]], T]) -> None:
        self._decode = decode
        self._known: dict[Hashable, tuple[tuple[Any, ...], T]] = {}

    def __call__(self, key: Hashable, row: Row[Any]) -> T:
        """A row, decoded."""
        raw = tuple(row)
        known = self._known.get(key)
        if known is not None and known[0] == raw:
            return known[1]
        if len(self._known) >= MOST:
            self._known.clear()
        made = self._decode(row)
        self._known[key] = raw, made
        return made
