"""Gymnasium spaces of every world: the observation of `envs.simulation.snapshot` and masked actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import (
    HISTORY_STEPS,
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    Category,
    Observation,
)
from spotweave.envs.simulation.world import WorldSpec

LARGEST = 1e9
"""Bound of every quantity that has no natural one (seconds, executors, USD): 30 years in seconds."""

_MOST_OF_CLUSTER = dict.fromkeys((col.IS_SPOT, col.AVAILABLE, col.UP_RATIO, col.QUEUES), 1.0)
_MOST_OF_JOB = {
    **dict.fromkeys((col.PRESENT, col.HAS_DEADLINE, col.PROGRESS, col.RUNNING), 1.0),
    **dict.fromkeys((col.IDLE, col.IS_SERVER, col.OWES, col.HAS_BUDGET), 1.0),
    col.CATEGORY: float(max(Category)),
    col.PEAK_SLOTS: 10.0,
}
_MOST_OF_PAIR = dict.fromkeys((col.HERE, col.FITS, col.IMPROPER), 1.0)


def observation_space(spec: WorldSpec) -> spaces.Dict:
    """Space of one observation, with finite bounds (see `envs.simulation.snapshot` for the columns)."""
    rows, clusters = spec.window, spec.n_clusters
    return spaces.Dict(
        {
            "clusters": _columns((clusters,), N_CLUSTER_FIELDS, _MOST_OF_CLUSTER),
            "occupation": spaces.Box(0.0, 1.0, (clusters, HISTORY_STEPS), np.float32),
            "jobs": _columns((rows,), N_JOB_FIELDS, _MOST_OF_JOB, (col.SLACK_S,)),
            "pairs": _columns((rows, clusters), N_PAIR_FIELDS, _MOST_OF_PAIR, (col.FREE, col.DEADLINE_S)),
            "action_mask": spaces.Box(0, 1, (spec.n_actions,), np.int8),
        }
    )


def _columns(
    leading: tuple[int, ...], n_columns: int, most: dict[int, float], signed: tuple[int, ...] = ()
) -> spaces.Box:
    """A Box whose last axis are columns: [0, LARGEST] unless `most` says less or one is signed."""
    low = np.zeros((*leading, n_columns), np.float32)
    high = np.full((*leading, n_columns), LARGEST, np.float32)
    low[..., list(signed)] = -LARGEST
    high[..., list(most)] = list(most.values())
    return spaces.Box(low, high, dtype=np.float32)


class MaskedDiscrete(spaces.Discrete[np.int64]):
    """Discrete actions whose `sample()` draws among those that are valid now.

    The space itself never changes (it contains 0..n-1); only what `sample` returns follows the decision at
    hand, so that the loop `env.step(env.action_space.sample())` runs.
    """

    def __init__(self, shown: Observation, seed: int | np.random.Generator | None = None) -> None:
        """Args: shown: a world's live observation, of which lane 0 is meant; seed: of the samples."""
        super().__init__(shown["action_mask"].shape[1], seed=seed)
        # Not a view of the mask: a copy or a pickle of a view no longer follows the world.
        self._shown = shown

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        """A random valid action (or one allowed by the `mask` or `probability` given)."""
        if mask is None and probability is None and self._shown["action_mask"][0].any():
            mask = self._shown["action_mask"][0]
        return np.int64(super().sample(mask=mask, probability=probability))


class MaskedMultiDiscrete(spaces.MultiDiscrete):
    """One masked discrete action per lane (see `MaskedDiscrete`)."""

    def __init__(self, shown: Observation, seed: int | np.random.Generator | None = None) -> None:
        """Args: shown: a world's live observation; seed: of the samples."""
        n_lanes, n_actions = shown["action_mask"].shape
        super().__init__(np.full(n_lanes, n_actions, np.int64), seed=seed)
        self._shown = shown

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.integer[Any]]:
        """A random valid action per lane (or as allowed by the `mask` or `probability` given)."""
        if mask is None and probability is None:
            return np.array([self._draw(row) for row in self._shown["action_mask"]], self.dtype)
        return super().sample(mask=mask, probability=probability)

    def _draw(self, row: NDArray[np.int8]) -> int:
        valid = np.flatnonzero(row)
        return int(self.np_random.choice(valid)) if len(valid) else 0


def checked_actions(given: object, n: int) -> Ints:
    """(n,) actions as whoever steps an environment may give them: integers, or an array of them.

    Shapes (n,) and (n, 1) are taken; for one action also ().

    Raises:
        ValueError: for anything else; one line that shows what was given.
    """
    try:
        found = np.asarray(given)
    except ValueError:  # lists of different lengths
        found = np.empty(0, object)
    fits = found.shape in ((n,), (n, 1)) or (n == 1 and found.size == 1)
    if found.dtype.kind not in "iu" or not fits or (found > np.iinfo(np.int64).max).any():
        shown = " ".join(repr(given).split())[:100]
        wanted = "an integer" if n == 1 else f"{n} integers"
        raise ValueError(f"action {shown} is no valid one: expected {wanted}, as in action_mask")
    return found.astype(np.int64).reshape(n)
