"""What every folder may use (files), and the command line, which may use every folder.

`spotweave.Client` is the client of a service; it is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploy.cli.client import Client, ServiceError, UnreachableError

__all__ = ["Client", "ServiceError", "UnreachableError"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("deploy.cli.client"), name)
