"""Named random streams: the same world for every policy.

One seed spawns one independent generator per *name*. A name is hashed into the spawn key, so adding a
stream, or asking for the streams in another order, changes no draw of the others.
"""

from __future__ import annotations

import math
import zlib
from typing import Literal, get_args

import numpy as np

from spotweave.envs.simulation.series import Floats

StreamName = Literal[
    "arrivals",
    "job_sizes",
    "prices",
    "availability",
    "revocations",
    "launches",
    "window",
    "policy",
    "network_weights",
    "exploration",
    "replay",
    "markets",
    "response_times",
    "data_partition",
    "batches",
]
Split = Literal["train", "validation", "test"]

STREAM_NAMES: tuple[StreamName, ...] = get_args(StreamName)
SPLITS: tuple[Split, ...] = get_args(Split)


def exp(values: Floats) -> Floats:
    """The exponential of each value, of any shape, by the C library.

    `np.exp` has code of its own for some processors (AVX-512), whose last bit may differ.
    """
    return np.fromiter(map(math.exp, values.flat), np.float64, values.size).reshape(values.shape)


def episode_sequence(seed: int, split: Split, index: int) -> np.random.SeedSequence:
    """Root seed sequence of episode `index` of a split; splits never share one.

    Args:
        seed: the run's or suite's seed, >= 0.
        split: "train", "validation" or "test".
        index: episode number within the split, >= 0.

    Raises:
        ValueError: for a negative seed or index, or an unknown split.
    """
    if seed < 0 or index < 0:
        raise ValueError(f"seed and episode index must be >= 0, got seed={seed}, index={index}")
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: expected one of {', '.join(SPLITS)}")
    return np.random.SeedSequence(entropy=seed, spawn_key=(SPLITS.index(split), index))


class Streams:
    """The named generators that belong to one root seed sequence."""

    def __init__(self, root: int | np.random.SeedSequence) -> None:
        self._root = root if isinstance(root, np.random.SeedSequence) else np.random.SeedSequence(root)

    def sequence(self, name: StreamName) -> np.random.SeedSequence:
        """Seed sequence of stream `name` (a pure function of the root and the name)."""
        if name not in STREAM_NAMES:
            raise ValueError(f"unknown random stream {name!r}: expected one of {', '.join(STREAM_NAMES)}")
        key = (*self._root.spawn_key, zlib.crc32(name.encode()))
        return np.random.SeedSequence(entropy=self._root.entropy, spawn_key=key)

    def generator(self, name: StreamName) -> np.random.Generator:
        """A fresh generator at the start of stream `name`."""
        return np.random.Generator(np.random.PCG64(self.sequence(name)))

    def key(self, name: StreamName) -> int:
        """A 63-bit integer key of stream `name`, for counter-based draws inside the compiled core."""
        return int(self.sequence(name).generate_state(1, np.uint64)[0] >> np.uint64(1))
