"""The deployment's budget: what is left of it, and what it still pays."""

from __future__ import annotations

import math

from deploy.model.instances import Offer
from deploy.scheduler.settings import SchedulerSettings
from deploy.store.store import Store

_SHORTEST_MONTH_S = 28 * 86_400.0


class Purse:
    """What everything may still cost. Without a budget it is never empty.

    Attributes:
        left_usd: after everything that runs, or was asked for, has ended: ending takes up to two passes.
    """

    def __init__(self, store: Store, settings: SchedulerSettings) -> None:
        self._store = store
        self._budget_usd = settings.budget_usd
        self._soon_s = 2 * settings.period_s
        self.left_usd = math.inf

    @property
    def spent(self) -> str:
        """Why everything has to end; "" while it has not."""
        return "" if self.left_usd >= 0 else f"the deployment's budget of {self._budget_usd:g} USD is spent"

    def count(self, now_s: float) -> None:
        """See what is left now."""
        if self._budget_usd is None:
            return
        with self._store.snapshot():
            total_usd = float(self._store.costs.total(now_s + self._soon_s).usd)
            asked_for = [one.offer for one in self._store.instances.live() if one.launched_s is None]
        self.left_usd = self._budget_usd - total_usd - sum(self._least_usd(offer) for offer in asked_for)

    def pays(self, offer: Offer, instances: int = 1) -> bool:
        """Whether it pays the least that so many instances cost."""
        return instances * self._least_usd(offer) <= self.left_usd

    def reason(self, offer: Offer) -> str:
        """Why it does not."""
        return (
            f"the deployment's budget leaves {max(0.0, self.left_usd):.4f} USD, "
            f"an instance there costs at least {self._least_usd(offer):.4f}"
        )

    def take(self, offer: Offer, instances: int) -> None:
        """So many will be rented."""
        self.left_usd -= instances * self._least_usd(offer)

    def _least_usd(self, offer: Offer) -> float:
        seconds = max(offer.billing_minimum_s, self._soon_s)
        return offer.price_usd_hour * seconds / 3600 + offer.disk_usd_month * seconds / _SHORTEST_MONTH_S
