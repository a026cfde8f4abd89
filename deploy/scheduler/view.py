"""What a pass of the scheduler sees of the offers, and what it has given away of them since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy.model.instances import Offer
from deploy.scheduler.needs import Need
from deploy.scheduler.occupancy import Occupancy
from deploy.scheduler.picture import snapshot_of
from envs.simulation.snapshot import Snapshot


@dataclass(frozen=True)
class View:
    """Offers and their use at one moment.

    Attributes:
        offers: in a fixed order.
        used: instances that run or boot on each, by its id.
        halted: instances that wait inside those with queues of their own.
        occupancy: how full they were lately.
        missed: deadlines missed on each so far.
    """

    offers: Sequence[Offer]
    used: Counter[str]
    halted: Counter[str]
    occupancy: Occupancy
    missed: Mapping[str, int]

    def snapshot(self, needs: Sequence[Need], offers: Sequence[Offer] | None = None) -> Snapshot:
        """Of these needs, and of these offers instead of all."""
        return snapshot_of(
            self.offers if offers is None else offers,
            needs,
            self.used,
            self.occupancy,
            halted=self.halted,
            missed=self.missed,
        )

    def offer(self, offer_id: str) -> Offer:
        """By its id. Raises KeyError."""
        for offer in self.offers:
            if offer.offer_id == offer_id:
                return offer
        raise KeyError(offer_id)

    def take(self, offer_id: str, instances: int) -> None:
        """What a task was given is not there for the next one."""
        offer = self.offer(offer_id)
        waits = offer.queues and self.used[offer_id] + instances > offer.quota
        (self.halted if waits else self.used)[offer_id] += instances
