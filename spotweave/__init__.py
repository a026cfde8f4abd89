"""Spotweave as a library: `make`, `load`, `train`, `compare`, `Client`; and what all folders use.

Importing it loads nothing heavy: what a function needs is imported when it is first asked for. Gymnasium
knows the environments as soon as both are imported, in either order.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deploy.cli.client import Client, ServiceError, UnreachableError
    from spotweave.api import Choice, Trained, compare, load, make, train

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

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("envs", "agents", "training", "deploy")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _require_own_packages()
    return getattr(import_module("deploy.cli.client" if name in _CLIENT else "spotweave.api"), name)


def _require_own_packages() -> None:
    """Say where a folder of the user's and one of ours have one name, not by an error deep within.

    Not when `spotweave` is imported: programs of jobs that never ask for the library may have such folders.

    Raises:
        ImportError: if Python takes theirs for ours.
    """
    for name in _PACKAGES:
        ours = _ROOT / name
        remedy = (
            f"both are the package {name!r}. Rename yours, or move it into a package of your own "
            f"(my_project/{name}, imported as my_project.{name})"
        )
        found = find_spec(name)
        if found is not None:
            place = Path([*(found.submodule_search_locations or ()), found.origin or ""][0]).resolve()
            if place != ours:
                raise ImportError(f"{place} hides {ours}, which Spotweave needs: {remedy}")
        for entry in sys.path:
            place = Path(entry, name).resolve()
            if place == ours:
                break
            if any(place.glob("*.py")):  # without an __init__.py: Python prefers ours
                warnings.warn(f"{ours} hides {place}, which cannot be imported: {remedy}", stacklevel=3)


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
                _register()

            found.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return found


def _register() -> None:
    # If `envs` is being imported already, it registers them itself.
    if "envs" not in sys.modules:
        try:
            _require_own_packages()
        except ImportError as error:
            warnings.warn(f"Gymnasium does not know Spotweave's environments: {error}", stacklevel=2)
        else:
            import_module("envs")


if "gymnasium" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _Registering())
