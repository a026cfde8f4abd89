"""Which offers have instances, so that quotas are kept."""

from __future__ import annotations

from collections import Counter

from envs.simulation.federations.rounds.server import Quota


class Rented:
    """Instances by offer.

    Args:
        quotas: what may be rented at once.
    """

    def __init__(self, quotas: tuple[Quota, ...]) -> None:
        self._quotas = quotas
        self._instances: Counter[int] = Counter()

    def begin(self, offer: int) -> None:
        """An instance is requested."""
        if self._quotas:
            self._instances[offer] += 1

    def end(self, offer: int) -> None:
        """An instance ends."""
        if self._quotas:
            self._instances[offer] -= 1

    def allow(self, offer: int, instead_of: int | None = None) -> bool:
        """Whether one more instance on an offer keeps all quotas, perhaps in the place of another's."""
        for quota in self._quotas:
            amount = quota.amounts.get(offer, 0)
            if not amount:
                continue
            used = sum(quota.amounts.get(other, 0) * n for other, n in self._instances.items())
            if instead_of is not None:
                used -= quota.amounts.get(instead_of, 0)
            if used + amount > quota.limit:
                return False
        return True
