"""How the functions of rules are compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])
Kernel: TypeAlias = Any  # a function compiled by numba, which ships no types

OPTIONS: Mapping[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False, "forceinline": True}


def compiled(function: F) -> F:
    """Compile a function of a rule, which neither allocates nor returns arrays: it counts no references.

    It is inlined, because the arrays of an observation are passed by value.
    """
    return cast(F, njit(**OPTIONS)(function))
