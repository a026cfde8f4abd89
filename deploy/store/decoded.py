"""Whole rows as objects. The loop reads the same thousands in each pass, and few of them change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sqlalchemy import JSON, Row, Select, Table, Text, cast, select

MOST = 5_000
"""Rows that are kept of one table."""
T = TypeVar("T")


class Decoded(Generic[T]):
    """Makes objects of the rows of a table, and keeps them as long as the rows are the same.

    Args:
        table: whose rows.
        make: from values by column; what it returns must not be changed by anyone.
    """

    def __init__(self, table: Table, make: Callable[[dict[str, Any]], T]) -> None:
        self._make = make
        self._names = tuple(table.c.keys())
        self._json = tuple(column.name for column in table.c if isinstance(column.type, JSON))
        self._n_key = len(table.primary_key)
        if self._names[: self._n_key] != tuple(column.name for column in table.primary_key):
            raise ValueError(f"the key of {table.name} must be its first columns")
        # As text it can be compared before it is parsed, which takes longer than all the rest.
        columns = [
            cast(column, Text).label(column.name) if column.name in self._json else column
            for column in table.c
        ]
        self.rows: Select[Any] = select(*columns)
        """All columns of the table, for queries whose rows come here."""
        self._known: dict[tuple[Any, ...], tuple[tuple[Any, ...], T]] = {}

    def __call__(self, row: Row[Any]) -> T:
        """The object of a row of `rows`."""
        # A tuple is compared several times as fast as a row.
        given = tuple(row)
        key = given[: self._n_key]
        known = self._known.get(key)
        if known is not None and known[0] == given:
            return known[1]
        values = dict(zip(self._names, given, strict=True))
        for name in self._json:
            values[name] = json.loads(values[name])
        if len(self._known) >= MOST:
            self._known.clear()
        made = self._make(values)
        self._known[key] = given, made
        return made
