"""Whether moving a running task is worth it: what it gains against what the switch itself costs.

The gain is what every further hour costs less elsewhere, appraised to the task's end. A price counts only as
far as it has lasted: the task's own place at the lower of its price of now and its mean of the latest hours,
the other place at the higher one. So nobody runs after a price that swings.

The switch costs, before any of that is gained,
- launch and set-up, and the work that was not saved, at the new price;
- the old place while the new one is launched, as the task stays until the new one is ready;
- what is left of the old instances' billing minimum then, and of the new ones' where the rest is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deploy.billing import micro_usd_hour
from deploy.model.instances import Offer
from deploy.model.tasks import Phase
from deploy.scheduler.appraising import Appraising
from deploy.scheduler.needs import Need
from deploy.scheduler.view import View
from deploy.store.instances import Instance
from deploy.store.prices import Prices, Quote
from deploy.store.tasks import Task


@dataclass(frozen=True)
class MoveRules:
    """When a running task may be moved.

    Attributes:
        margin: the gain must exceed the cost of the switch by this share of it.
        hint_risk: share of the switch that is counted as due anyway once the provider advises to leave.
        memory_s: over so long a price's mean is taken.
    """

    margin: float = 0.2
    hint_risk: float = 0.5
    memory_s: float = 6 * 3600.0


@dataclass(frozen=True)
class Standing:
    """What a running task has where it is.

    Attributes:
        offer: where, as it is now.
        unsaved: share of the work that a move would lose.
        minimum_left_s: seconds of the youngest instance's billing minimum that are still to come.
        hinted: whether the provider advises to leave, or has announced the end of some of the instances.
    """

    offer: Offer
    unsaved: float = 0.0
    minimum_left_s: float = 0.0
    hinted: bool = False


def standing_of(task: Task, held: Sequence[Instance], offers: Sequence[Offer], now_s: float) -> Standing:
    """The standing of a task with these instances; their offer as it is now, if its provider answered."""
    rented = held[0].offer
    offer = next((one for one in offers if one.offer_id == rented.offer_id), rented)
    ages = [now_s - one.launched_s for one in held if one.launched_s is not None]
    return Standing(
        offer=offer,
        unsaved=max(0.0, task.progress - task.saved) if task.phase is Phase.RUNNING else 0.0,
        minimum_left_s=max(0.0, rented.billing_minimum_s - min(ages, default=0.0)),
        hinted=any(one.rebalance or one.notice_s is not None for one in held),
    )


@dataclass(frozen=True)
class Move:
    """A move, appraised.

    Attributes:
        gain_usd: what the rest of the work costs less there, without the switch.
        cost_usd: of the switch.
        worth: whether the gain exceeds it by the margin.
    """

    gain_usd: float
    cost_usd: float
    worth: bool

    @property
    def words(self) -> str:
        """For people."""
        return f"moving gains {self.gain_usd:.4f} USD, the switch costs {self.cost_usd:.4f} USD"


def appraise(
    need: Need,
    standing: Standing,
    there: Offer,
    appraising: Appraising,
    view: View,
    rules: MoveRules,
) -> Move:
    """The move of a running task to another offer.

    Args:
        need: the task, as policies see it.
        standing: what it has; its offer's price as it may be counted on (see `lasting`).
        there: where to; its price likewise.
        appraising: by the common rule.
        view: of the offers.
        rules: of moves.
    """
    here = standing.offer
    usd = appraising.expected_usd(need, view, [here, there])
    old_usd_s, new_usd_s = (
        offer.price_usd_hour * need.resources.instances / 3600.0 for offer in (here, there)
    )
    start_s = there.launch_s + need.restart_s
    redo_s = standing.unsaved * need.execution_s(there.speed)
    short_s = max(0.0, there.billing_minimum_s - start_s - redo_s - need.left_s(there.speed))
    kept_s = there.launch_s + max(0.0, standing.minimum_left_s - there.launch_s)
    cost_usd = new_usd_s * (start_s + redo_s + short_s) + old_usd_s * kept_s
    # The appraisal of the other place has its launch and set-up in it.
    gain_usd = usd[here.offer_id] - usd[there.offer_id] + new_usd_s * start_s
    due_usd = rules.hint_risk * cost_usd if standing.hinted else 0.0
    return Move(gain_usd, cost_usd, gain_usd + due_usd > (1.0 + rules.margin) * cost_usd)


def lasting(here: Offer, there: Offer, prices: Prices, now_s: float, memory_s: float) -> tuple[Offer, Offer]:
    """Both offers at the prices that may be counted on: see the module."""
    low = min(here.price_usd_hour, mean_usd_hour(here, prices, now_s, memory_s))
    high = max(there.price_usd_hour, mean_usd_hour(there, prices, now_s, memory_s))
    return replace(here, price_usd_hour=low), replace(there, price_usd_hour=high)


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
