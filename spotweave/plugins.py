"""What installed packages add to ours, by entry points."""

from __future__ import annotations

from collections.abc import Container
from importlib.metadata import entry_points
from typing import TypeVar

T = TypeVar("T")


class PluginError(ValueError):
    """An entry point that cannot be used; the message is one line that names it."""


def plugins(group: str, kind: type[T], taken: Container[str] = ()) -> dict[str, T]:
    """The objects behind the entry points of a group, by name.

    Args:
        group: e.g. "spotweave.agents".
        kind: what each must be an instance of.
        taken: names that are ours.

    Raises:
        PluginError: if one cannot be loaded, is something else, or has a name that is taken.
    """
    found: dict[str, T] = {}
    for point in entry_points(group=group):
        where = f"entry point {point.name!r} of {group} ({point.value})"
        if point.name in taken or point.name in found:
            raise PluginError(f"{where}: the name is taken, choose another one")
        try:
            loaded = point.load()
        except Exception as error:  # a package of others may fail in any way
            raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        if not isinstance(loaded, kind):
            raise PluginError(f"{where} is of type {type(loaded).__name__}: expected {kind.__name__}")
        found[point.name] = loaded
    return found
