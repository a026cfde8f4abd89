"""Execution of a task by a worker."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

KEPT_WORKS = 4
"""A worker keeps so many works with their worlds: those of a training, its validation and a comparison."""


def carry_out(pickled: bytes, task: bytes) -> bytes:
    """The result of a work for a task; all three are pickled here, because Ray's own arrays are read-only."""
    return pickle.dumps(_unpickled(pickled)(pickle.loads(task)))


@lru_cache(KEPT_WORKS)
def _unpickled(pickled: bytes) -> Callable[[Any], Any]:
    work: Callable[[Any], Any] = pickle.loads(pickled)
    if "torch" in sys.modules:
        # There is a worker for each core, and what a network sums up must not depend on a machine's cores.
        sys.modules["torch"].set_num_threads(1)
    return work
