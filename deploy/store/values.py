"""What goes into columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Mapping[str, Json] | Sequence[Json] | None"
"""Anything that JSON can hold; NaN and infinity it cannot."""

MAX_TEXT = 4_000
_PORTION = 10_000
"""Names in one IN (...); both databases take at least three times as many parameters."""


def portions(names: Collection[str]) -> Iterator[list[str]]:
    """The names in lists that one statement can hold."""
    rest = iter(names)
    while some := list(islice(rest, _PORTION)):
        yield some


def plain(text: str) -> str:
    """A message as both databases can hold it: no NUL, no lone surrogates, at most `MAX_TEXT` characters.

    Messages come from logs of users' programs, and a byte in them must not stop the scheduler.
    """
    cleaned = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    return cleaned if len(cleaned) <= MAX_TEXT else cleaned[: MAX_TEXT - 1] + "…"
