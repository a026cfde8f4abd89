"""The net under every policy: a deadline that on-demand capacity could still meet is met.

A policy may gamble with spot capacity as long as there is time left to fall back on. When that time is up
(the latest start on demand, less a margin for what launches and estimates are off by), the task goes to the
on-demand or owned offer that ends it first, or stays if it is on such an offer. Source of the idea: the
"safety net" of "Can't Be Late" (NSDI'24), for one job and one zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.model.instances import Offer
from deploy.scheduler.needs import Need


@dataclass(frozen=True)
class Margin:
    """How much earlier than the latest start the net catches.

    Attributes:
        fixed_s: seconds.
        share: and this share of launch, set-up and work.
    """

    fixed_s: float = 60.0
    share: float = 0.1


@dataclass(frozen=True)
class Verdict:
    """What the net says.

    Attributes:
        offer_id: where the task must be; None: the policy's choice stands.
        reason: in words, for the event log.
    """

    offer_id: str | None
    reason: str


STANDS = Verdict(None, "")


def catch(
    need: Need, chosen: str | None, offers: Sequence[Offer], free: dict[str, int], margin: Margin
) -> Verdict:
    """Whether a decision must be overruled.

    Args:
        need: the task, with `slack_s` if it has a deadline.
        chosen: the policy's choice: an offer's id, None for none for now.
        offers: all offers.
        free: instances that are free on each offer, by its id.
        margin: of the net.

    Returns:
        STANDS where nothing can or need be done: without a deadline, with time to spare, where the choice
        itself cannot be taken away, or where the deadline can be met nowhere any more.
    """
    if need.slack_s is None or need.kind == "federated":
        return STANDS
    sure = {offer.offer_id: offer for offer in offers if offer.market != "spot"}
    if chosen in sure or (chosen is None and need.running and need.here in sure):
        return STANDS
    in_time = [
        (finish_s(need, offer), offer.price_usd_hour, offer.offer_id)
        for offer in sure.values()
        if _can_go(need, offer, free) and finish_s(need, offer) <= need.slack_s
    ]
    if not in_time:
        return STANDS
    took_s, _, offer_id = min(in_time)
    if need.slack_s - took_s * (1 + margin.share) - margin.fixed_s > 0:
        return STANDS
    return Verdict(
        offer_id,
        f"the deadline is in {need.slack_s:.0f} s and on-demand capacity needs {took_s:.0f} s: "
        f"no more time for {'waiting' if chosen is None else chosen}",
    )


def finish_s(need: Need, offer: Offer) -> float:
    """Expected seconds until the task's work (streaming: its next batch) ends on an offer, from now."""
    left = 1.0 if need.kind == "streaming" else 1.0 - need.progress
    return offer.launch_s + need.restart_s + need.standard_s * left / offer.speed


def _can_go(need: Need, offer: Offer, free: dict[str, int]) -> bool:
    return (
        offer.available
        and need.refusal(offer) is None
        and free.get(offer.offer_id, 0) >= need.resources.instances
    )
