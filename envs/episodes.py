"""Which episode comes next: from the seed and options of `reset` to an `EpisodeKey`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from envs.simulation.streams import SPLITS, Split
from envs.simulation.world import EpisodeKey

OPTIONS = ("split", "index")


@dataclass
class EpisodeCounter:
    """The episodes of one environment.

    A seed starts at index 0 of its split; every later reset without a seed goes to the next index. The
    options "split" (kept until changed) and "index" choose an episode directly.
    """

    seed: int | None = None
    split: Split = "train"
    index: int = -1

    def next(
        self, seed: int | None, options: Mapping[str, Any] | None, generator: np.random.Generator
    ) -> EpisodeKey:
        """The next episode.

        Args:
            seed: of this reset, or None to go on.
            options: of this reset: "split", "index".
            generator: draws the seed if none was ever given.

        Raises:
            ValueError: for an unknown option, split, or a negative index.
        """
        chosen = dict(options or {})
        for name in chosen:
            if name not in OPTIONS:
                raise ValueError(f"unknown reset option {name!r}: expected one of {', '.join(OPTIONS)}")
        if seed is not None or self.seed is None:
            self.seed = int(generator.integers(2**31)) if seed is None else seed
            self.index = -1
        split = chosen.get("split", self.split)
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: expected one of {', '.join(SPLITS)}")
        if split != self.split:
            self.split, self.index = cast(Split, split), -1
        self.index = self.index + 1 if chosen.get("index") is None else int(chosen["index"])
        if self.index < 0:
            raise ValueError(f"reset option index must be >= 0, got {self.index}")
        return EpisodeKey(self.seed, self.split, self.index)
