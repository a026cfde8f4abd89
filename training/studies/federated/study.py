"""What every section of the pages is made with: how many episodes, where they are kept, which policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from training.evaluation.suite import Suite, find_suite
from training.progress import PlayProgress
from training.studies.federated.contestants import Contestant, Learned
from training.studies.federated.playing import Episodes
from training.studies.keeping import Keeper


@dataclass(frozen=True)
class Study:
    """What was asked for.

    Attributes:
        keeper: keeps what was played.
        progress: told of what is played.
        learned: the learned policy; None where there is none.
        episodes: plays this many of each instead of the published numbers, to try things out.
    """

    keeper: Keeper
    progress: PlayProgress
    learned: Learned | None = None
    episodes: int | None = None

    def count(self, published: int) -> int:
        """How many episodes are played where `published` are meant."""
        return published if self.episodes is None else self.episodes

    def suite(self, episodes: int) -> Suite:
        """The first test episodes, or those that were asked for."""
        return find_suite("test", self.count(episodes))

    def play(
        self, section: str, case: str, contestants: Sequence[Contestant], suite: Suite
    ) -> dict[str, Episodes]:
        """Every contestant's episodes by name, from what is kept or played now."""
        return {one.name: self._play(section, case, one, suite) for one in contestants}

    def _play(self, section: str, case: str, one: Contestant, suite: Suite) -> Episodes:
        told = partial(self.progress, f"{section}, {case}: {one.title}")
        identity = {
            "section": section,
            "case": case,
            "policy": one.identity,
            "suite": [suite.split, suite.seed, suite.episodes],
        }
        return self.keeper.keep(identity, lambda: dict(one.play(suite, told)))
