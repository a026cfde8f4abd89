"""The guards of `envs.simulation.guards` around a live decision: what they must know, and their words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploy.billing import micro_usd_hour
from deploy.model.instances import Offer
from deploy.model.tasks import Phase
from deploy.scheduler.snapshot.needs import Need
from deploy.scheduler.snapshot.writer import Row
from deploy.store.instances import Instance
from deploy.store.prices import Prices, Quote
from deploy.store.tasks import Task
from envs.simulation import columns as col
from envs.simulation.guards.rules import Facts, GuardsConfig, move_usd
from envs.simulation.guards.safety import guarded, safety_net


@dataclass(frozen=True)
class Standing:
    """What a running task has where it is.

    Attributes:
        unsaved: share of the work that a move would lose.
        minimum_left_s: seconds of the youngest instance's billing minimum that are still to come.
        hinted: whether the provider advises to leave, or has announced the end of some of the instances.
    """

    unsaved: float = 0.0
    minimum_left_s: float = 0.0
    hinted: bool = False


def standing_of(task: Task, held: Sequence[Instance], now_s: float) -> Standing:
    """The standing of a task with these instances."""
    ages = [now_s - one.launched_s for one in held if one.launched_s is not None]
    return Standing(
        unsaved=max(0.0, task.progress - task.saved) if task.phase is Phase.RUNNING else 0.0,
        minimum_left_s=max(0.0, held[0].offer.billing_minimum_s - min(ages, default=0.0)),
        hinted=any(one.rebalance or one.notice_s is not None for one in held),
    )


@dataclass(frozen=True)
class Outcome:
    """What becomes of a policy's choice.

    Attributes:
        offer_id: where the task goes or stays; None for none for now, which leaves a task that runs.
        overruled: why that is not the policy's choice; "" if it is.
        gain_usd: of a move: what the rest of the work costs less there.
        cost_usd: of a move: what the switch costs.
    """

    offer_id: str | None
    overruled: str = ""
    gain_usd: float | None = None
    cost_usd: float | None = None


class Guards:
    """Bounds the choices of policies.

    Args:
        config: which guards are on.
        prices: what offers cost lately; None: nothing but the present is known.
    """

    def __init__(self, config: GuardsConfig, prices: Prices | None = None) -> None:
        self.rules = config.rules()
        self._prices = prices

    def bound(
        self,
        row: Row,
        need: Need,
        chosen: str | None,
        offers: Sequence[Offer],
        now_s: float = 0.0,
        standing: Standing | None = None,
        left_usd: float = math.inf,
    ) -> Outcome:
        """What a choice becomes.

        Args:
            row: what the policy saw of the task.
            need: the task.
            chosen: the offer's id; None for none for now.
            offers: the clusters of the row.
            now_s: epoch seconds.
            standing: of a task that runs.
            left_usd: what budgets still pay.
        """
        n_offers = len(offers)
        ids = [offer.offer_id for offer in offers]
        place = n_offers if chosen is None else ids.index(chosen)
        facts = self._facts(need, place, offers, now_s, standing, left_usd)
        kept = guarded(*row, place, facts, self.rules)
        goes_to = None if kept == n_offers else ids[kept]
        gain_usd = cost_usd = None
        if standing is not None and need.running and place < n_offers and need.here in ids:
            gain_usd, cost_usd = move_usd(*row[:3], ids.index(need.here), place, facts)
        if kept == place:
            return Outcome(goes_to, "", gain_usd, cost_usd)
        if safety_net(*row, place, facts, self.rules) != place:
            return Outcome(goes_to, net_words(row, need, ids, chosen))
        if gain_usd is not None and facts.start_usd[place] <= left_usd:
            words = f"it stays: moving gains {gain_usd:.4f} USD, the switch costs {cost_usd:.4f} USD"
            return Outcome(goes_to, words, gain_usd, cost_usd)
        return Outcome(goes_to, f"budgets leave {left_usd:.4f} USD, a start there costs more")

    def _facts(
        self,
        need: Need,
        place: int,
        offers: Sequence[Offer],
        now_s: float,
        standing: Standing | None,
        left_usd: float,
    ) -> Facts:
        mean = np.zeros(len(offers))
        minimum = np.zeros(len(offers))
        start = np.zeros(len(offers))
        for k, offer in enumerate(offers):
            if standing is not None and (k == place or offer.offer_id == need.here):
                mean[k] = self._mean_usd_hour(offer, now_s)
                minimum[k] = offer.billing_minimum_s
            if left_usd < math.inf:
                start[k] = need.start_usd(offer)
        has = standing or Standing()
        return Facts(mean, minimum, start, left_usd, has.unsaved, has.minimum_left_s, float(has.hinted))

    def _mean_usd_hour(self, offer: Offer, now_s: float) -> float:
        if self._prices is None:
            return offer.price_usd_hour
        return mean_usd_hour(offer, self._prices, now_s, self.rules.price_memory_s)


def net_words(row: Row, need: Need, ids: Sequence[str], chosen: str | None) -> str:
    """Why the safety net overrules a choice."""
    sure = [k for k in range(len(ids)) if row.clusters[k, col.IS_SPOT] == 0.0]
    needs_s = min(float(row.pairs[k, col.FINISH_S]) for k in sure)
    return (
        f"the deadline is in {need.allowed_s:.0f} s and on-demand capacity needs {needs_s:.0f} s: "
        f"no more time for {'waiting' if chosen is None else chosen}"
    )


def mean_usd_hour(offer: Offer, prices: Prices, now_s: float, memory_s: float) -> float:
    """Mean price of an offer over the latest `memory_s`, or since it was first seen."""
    start_s = now_s - memory_s
    quotes: list[Quote] = list(prices.between(offer.offer_id, start_s, now_s))
    if not quotes:
        return offer.price_usd_hour
    since = [max(start_s, quote.seen_s) for quote in quotes]
    until = [*since[1:], now_s]
    whole_s = now_s - since[0]
    if whole_s <= 0:
        return offer.price_usd_hour
    total = sum(
        quote.price_micro_usd_hour * (end_s - begin_s)
        for quote, begin_s, end_s in zip(quotes, since, until, strict=True)
    )
    return total / whole_s / micro_usd_hour(1.0)
