"""The live commands of `spotweave`. `commands` loads nothing but typer; the rest comes when it is used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotweave.deploy.cli import client, clouds, queries, serve, upkeep

__all__ = ["client", "clouds", "queries", "serve", "upkeep"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
