"""How the inner functions of the market world are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False, "forceinline": True}

entry = njit(**_OPTIONS, nogil=True)
"""For the functions that Python calls while it steps: as `inner`, and other threads go on meanwhile."""

inner = njit(**_OPTIONS)
"""For functions that work on arrays which their caller keeps alive, and allocate none themselves.

They skip reference counting, which at 25 arrays a call took most of the time: a decision is six times faster
without it. They are inlined, because every array is passed by value, seven words or more of it: that makes a
decision twice as fast again. Called from Python they work too, only their arguments take longer to unpack.
"""
