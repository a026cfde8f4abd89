"""Offers that are left alone for a while: for everyone, or for a task that failed to start there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from deploy.model.jobs import TaskKey

LONGEST_S = 1800.0


class Cooldowns:
    """Until when each offer is left alone.

    A task that comes to nothing on an offer must not close it for all others: a job that cannot start
    anywhere would close the whole market. So what a launch says of an offer counts for everyone, and what
    becomes of an attempt for its task only.

    Args:
        first_s: the first cooldown of an offer; doubled with each further one in a row, up to half an hour.
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._offers: dict[str, float] = {}
        self._refusals: dict[str, int] = {}
        self._tasks: dict[tuple[TaskKey, str], float] = {}

    def no_capacity(self, offer_id: str, now_s: float) -> None:
        """It had nothing for us, which may change at any time."""
        self._offers[offer_id] = now_s + self._first_s

    def refused(self, offer_id: str, now_s: float) -> None:
        """A launch there was refused or came to nothing, which will probably be so again."""
        tries = self._refusals.get(offer_id, 0)
        self._refusals[offer_id] = tries + 1
        self._offers[offer_id] = now_s + min(LONGEST_S, self._first_s * 2.0 ** min(tries, 30))

    def started(self, offer_id: str) -> None:
        """Everything that a task needs was rented there: the next refusal is the first again."""
        self._refusals.pop(offer_id, None)

    def failed(self, key: TaskKey, offer_id: str, now_s: float) -> None:
        """A task came to nothing there: it goes elsewhere next, if it can."""
        self._tasks[key, offer_id] = now_s + self._first_s

    def left_s(self, offer_id: str, now_s: float) -> float:
        """For how much longer everyone leaves an offer alone; 0 if nobody has to."""
        return max(0.0, self._offers.get(offer_id, now_s) - now_s)

    def of_task(self, key: TaskKey, now_s: float) -> Mapping[str, float]:
        """Seconds for which a task leaves offers alone, by offer."""
        return {
            offer_id: until_s - now_s
            for (task, offer_id), until_s in self._tasks.items()
            if task == key and until_s > now_s
        }

    def keep_only(self, keys: Collection[TaskKey], now_s: float) -> None:
        """Forget tasks that are gone, and what is over."""
        self._offers = {name: until_s for name, until_s in self._offers.items() if until_s > now_s}
        self._tasks = {
            (key, name): until_s
            for (key, name), until_s in self._tasks.items()
            if key in keys and until_s > now_s
        }
