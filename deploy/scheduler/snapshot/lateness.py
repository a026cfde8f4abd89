"""Deadlines missed on each offer, which snapshots show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from deploy.model.jobs import TaskKey


class Lateness:
    """Counts, for each offer, the deadlines that passed while a task was there.

    Attributes:
        by_offer: misses since this scheduler started.
    """

    def __init__(self) -> None:
        self.by_offer: Counter[str] = Counter()
        self._known: dict[TaskKey, int] = {}

    def start(self, key: TaskKey, misses: int) -> None:
        """A task that has missed this many deadlines is put somewhere."""
        self._known[key] = misses

    def see(self, key: TaskKey, offer_id: str, misses: int) -> None:
        """A task that is on an offer has missed this many by now."""
        self.by_offer[offer_id] += max(0, misses - self._known.get(key, misses))
        self._known[key] = misses

    def keep_only(self, keys: Collection[TaskKey]) -> None:
        """Forget all other tasks; what they missed stays counted."""
        self._known = {key: misses for key, misses in self._known.items() if key in keys}
