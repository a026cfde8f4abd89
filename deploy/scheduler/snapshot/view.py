"""What a pass of the scheduler sees of the offers, and what it has given away of them since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from deploy.model.instances import Offer
from deploy.scheduler.snapshot.needs import Need
from deploy.scheduler.snapshot.occupancy import Occupancy
from deploy.scheduler.snapshot.writer import clusters_of, fill_use, rows_of, snapshot_from
from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, Snapshot, request_beyond


class View:
    """Offers and their use in one pass.

    Columns are computed once: a task is shown many times before it is decided about.

    Args:
        offers: in a fixed order.
        used: instances that run or boot on each, by its id.
        halted: instances that wait inside those with queues of their own.
        occupancy: how full they were lately.
        missed: deadlines missed on each so far.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        used: Counter[str],
        halted: Counter[str],
        occupancy: Occupancy,
        missed: Mapping[str, int],
    ) -> None:
        self.offers = offers
        self.used = used
        self._halted = halted
        self._occupancy = occupancy
        self._missed = missed
        self.sure = [offer for offer in offers if offer.market != "spot"]
        self._by_id = {offer.offer_id: offer for offer in offers}
        self._rows: dict[int, tuple[Need, tuple[FloatArray, FloatArray]]] = {}

    @cached_property
    def _clusters(self) -> tuple[FloatArray, FloatArray]:
        return clusters_of(self.offers, self._occupancy)

    def snapshot(self, needs: Sequence[Need]) -> Snapshot:
        """Of these needs and all offers."""
        clusters, history = self._clusters
        clusters = clusters.copy()
        fill_use(clusters, self.offers, self.used, self._halted, self._missed)
        snapshot = snapshot_from(clusters, history, [self._of(need) for need in needs])
        for k, need in enumerate(needs):
            if need.kind == "federated":
                self._keep_from_queues(need, snapshot.pairs[k])
        return snapshot

    def _keep_from_queues(self, need: Need, pairs: FloatArray) -> None:
        """A client does not queue: others of its training may hold what it waits for, and wait for it."""
        for k, offer in enumerate(self.offers):
            full = self.used[offer.offer_id] + need.resources.instances > offer.quota
            if offer.queues and full and offer.offer_id != need.here:
                beyond = max(need.resources.instances, int(request_beyond(offer.quota)))
                pairs[k, [col.REQUEST, col.PEAK_REQUEST]] = beyond

    def _of(self, need: Need) -> tuple[FloatArray, FloatArray]:
        known = self._rows.get(id(need))
        if known is None:
            known = need, rows_of(need, self.offers, {})
            self._rows[id(need)] = known  # which keeps the need, so that its id stays its own
        return known[1]

    def offer(self, offer_id: str) -> Offer:
        """By its id. Raises KeyError."""
        return self._by_id[offer_id]

    def take(self, offer_id: str, instances: int) -> None:
        """What a task was given is not there for the next one."""
        offer = self.offer(offer_id)
        waits = offer.queues and self.used[offer_id] + instances > offer.quota
        (self._halted if waits else self.used)[offer_id] += instances
