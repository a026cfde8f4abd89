"""Which tasks have instances on which offers, so that quotas are kept."""

from __future__ import annotations

from envs.simulation.federations.rounds.server import Quota


class Rented:
    """The instances of one application's tasks: its clients by their index, its server by SERVER.

    Args:
        quotas: what may be rented at once.
    """

    def __init__(self, quotas: tuple[Quota, ...]) -> None:
        self._quotas = quotas
        self._offers: dict[int, int] = {}

    def begin(self, task: int, offer: int) -> None:
        """An instance is requested."""
        self._offers[task] = offer

    def end(self, task: int) -> None:
        """An instance ends."""
        del self._offers[task]

    def allow(self, task: int | None, offer: int) -> bool:
        """Whether an instance on an offer keeps all quotas: the task's, in place of what it has now.

        None asks for one more instance, besides all that there are.
        """
        for quota in self._quotas:
            amount = quota.amounts.get(offer, 0)
            if not amount:
                continue
            used = sum(quota.amounts.get(there, 0) for other, there in self._offers.items() if other != task)
            if used + amount > quota.limit:
                return False
        return True
