"""Reads that a thread keeps until this process writes to the same tables."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Recall:
    """Reads that are done once and answered from memory after that, where a thread asks for it.

    A pass of the scheduler needs the same thousands of rows at every stage. What other processes write is
    seen only from the next `kept` on: this is for the one process that leads a deployment.
    """

    def __init__(self) -> None:
        self._commits: Counter[str] = Counter()
        """By table: transactions of this process that have written to it."""
        self._local = threading.local()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Until this ends, what the thread reads through `read` is kept."""
        self._local.kept = {}
        try:
            yield
        finally:
            del self._local.kept

    def read(self, name: str, tables: tuple[str, ...], load: Callable[[], T]) -> T:
        """What `load` gives, or gave earlier if these tables have not been written to since.

        What the thread's own open transaction has written is never kept.
        """
        kept: dict[str, tuple[list[int], Any]] | None = getattr(self._local, "kept", None)
        if kept is None or not self._written.isdisjoint(tables):
            return load()
        # Seen before it is read: what is committed meanwhile makes it old.
        commits = [self._commits[table] for table in tables]
        known = kept.get(name)
        if known is None or known[0] != commits:
            known = kept[name] = commits, load()
        found: T = known[1]
        return found

    def writes(self, table: str) -> None:
        """The thread's transaction writes to a table."""
        self._written.add(table)

    def end_transaction(self) -> None:
        """The thread's transaction is over, and others have not begun to write yet."""
        self._commits.update(self._written)
        self._written.clear()

    @property
    def _written(self) -> set[str]:
        written: set[str] | None = getattr(self._local, "written", None)
        if written is None:
            written = self._local.written = set()
        return written
