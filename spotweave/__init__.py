"""Spotweave as a library: `make`, `load`, `train`, `compare`, `Client`; and what all folders use.

The folders `envs`, `agents`, `training`, `deploy`, `configs` and `checkpoints` beside this one are linked
into it and imported as `spotweave.envs` and so on, because projects have folders of these names too.

Importing it loads nothing heavy: what a function needs is imported when it is first asked for. Gymnasium
knows the environments as soon as both are imported, in either order.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotweave.api import Choice, Trained, compare, load, make, train
    from spotweave.deploy.cli.client import Client, ServiceError, UnreachableError

_CLIENT = ("Client", "ServiceError", "UnreachableError")
__all__ = [
    "Choice",
    "Client",
    "ServiceError",
    "Trained",
    "UnreachableError",
    "compare",
    "load",
    "make",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("spotweave.deploy.cli.client" if name in _CLIENT else "spotweave.api"), name)


class _Registering:
    """Finds Gymnasium, which has no plugins since 1.0, and registers the environments once it is imported."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        found = find_spec(name)
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                import_module("spotweave.envs")

            found.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return found


if "gymnasium" in sys.modules:
    import_module("spotweave.envs")
else:
    sys.meta_path.insert(0, _Registering())
