"""Calls of `inner` functions, which compiled functions call only."""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import njit

from agents.rules.kernels import with_names


def _call(*arguments: Any) -> Any:
    return called(*arguments)


def called(*_: Any) -> Any:
    """Stands for the function in `_call`."""
    raise NotImplementedError


@cache
def from_python(function: Any) -> Any:
    """An `inner` function, as Python can call it."""
    return njit(cache=True, error_model="numpy")(with_names(_call, function, {"called": function}))
