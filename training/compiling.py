"""Compiles the market world on two cores, the first time that a machine needs it.

Numba compiles one function at a time. Half of what a training in the market needs is independent of the
other half: a helper process compiles that and leaves it in the cache, where this process finds it in time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
import numpy as np

import spotweave
from spotweave.envs.environments import ENVIRONMENTS

MARKET = "multicloud"


@contextmanager
def compiled_in_parallel(environment: str) -> Iterator[None]:
    """Within the block, a helper compiles ahead, if the market world is not in the cache yet."""
    # A cache of the user's own is not told apart by the version of the sources.
    folder = "" if os.environ.get("NUMBA_CACHE_DIR") else numba.config.CACHE_DIR  # type: ignore[attr-defined]
    marker = Path(folder) / "market-compiled" if folder else None
    if environment != MARKET or marker is None or marker.exists():
        yield
        return
    helper = subprocess.Popen(
        [sys.executable, "-m", "spotweave.training.compiling"],
        cwd=Path(spotweave.__file__).parents[1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        # What it has not come to by now is not waited for: whoever needs it compiles it.
        if helper.poll() is None:
            helper.terminate()
        elif helper.returncode == 0:
            with suppress(OSError):
                marker.touch()
        helper.wait()


def ahead() -> None:
    """Compile the policies, while the training that needs them compiles the world."""
    from spotweave.agents.named import named_rule
    from spotweave.agents.registry import MTDQNSettings, Shape, agent_named

    entry = ENVIRONMENTS[MARKET]
    world = entry.build(entry.members_of(entry.config_class(), "validation")[0], 1)
    shape = Shape(world.spec.n_clusters, (1.0,) * len(world.spec.components), world.spec.weights)
    make = agent_named("mtdqn").make
    assert make is not None
    policies: list[Any] = [
        make(MTDQNSettings(guide="expected_cost"), shape),
        named_rule("expected_cost", world.spec),
        *map(named_rule, entry.rivals or ()),  # for the table at the end of a training
    ]
    for policy in policies:
        # No job is open yet, which is no matter to the compiler.
        with suppress(ValueError):
            policy.act_batch(world.observation, np.zeros(1, np.int64))


if __name__ == "__main__":
    ahead()
