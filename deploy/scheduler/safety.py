"""The net under every policy: a deadline that on-demand capacity could still meet is met.

A policy may gamble with spot capacity as long as there is time left to fall back on. When that time is up
(the latest start on demand, less a margin for what launches and estimates are off by), the task goes to the
on-demand or owned offer that ends it first, or stays if it is on such an offer. What was not saved counts as
not done then, as it would have to be done again. Where no offer can meet a deadline any more `hopeless` says
so; policies then see a task without one. Source of the idea: the
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
    if need.slack_s is None:
        return STANDS
    sure = {offer.offer_id: offer for offer in offers if offer.market != "spot"}
    if chosen in sure or (chosen is None and need.running and need.here in sure):
        return STANDS
    in_time = [
        (offer.offer_id != need.here, finish_s(need, offer), offer.price_usd_hour, offer.offer_id)
        for offer in sure.values()
        if (need.here == offer.offer_id or _can_go(need, offer, free))
        and finish_s(need, offer) <= need.slack_s
    ]
    if not in_time:
        return STANDS
    _, took_s, _, offer_id = min(in_time)
    if need.slack_s - took_s * (1 + margin.share) - margin.fixed_s > 0:
        return STANDS
    return Verdict(
        offer_id,
        f"the deadline is in {need.slack_s:.0f} s and on-demand capacity needs {took_s:.0f} s: "
        f"no more time for {'waiting' if chosen is None else chosen}",
    )


def hopeless(need: Need, offers: Sequence[Offer]) -> str:
    """Why the deadline of a task can be met nowhere any more, even if everything were free; "" if it can.

    Streams are left out: each of their batches has a deadline, and the next one may be met.
    """
    if need.slack_s is None or need.kind == "streaming":
        return ""
    soonest_s = min(
        (
            finish_s(need, offer)
            for offer in offers
            if need.here == offer.offer_id or need.refusal(offer) is None
        ),
        default=None,
    )
    if soonest_s is None or soonest_s <= need.slack_s:
        return ""
    when = f"is in {need.slack_s:.0f} s" if need.slack_s >= 0 else f"was {-need.slack_s:.0f} s ago"
    return f"the deadline {when} and what is left takes {soonest_s:.0f} s at best"


def finish_s(need: Need, offer: Offer) -> float:
    """Expected seconds until the task's work (streaming: its next batch) ends on an offer, from now.

    A federated training ends when the slowest client has done all rounds.
    """
    rounds_s = 0.0
    if need.kind == "federated":
        epoch_s = max(need.standard_s, need.round.slowest_s) / offer.speed
        rounds_s = max(0, need.executions_left - 1) * epoch_s
    if offer.offer_id == need.here:
        return need.left_here_s + rounds_s
    move = need.moves.get(offer.region)
    moved_s = 0.0 if move is None else move.seconds
    return offer.launch_s + need.restart_s + moved_s + need.left_s(offer.speed) + rounds_s


def _can_go(need: Need, offer: Offer, free: dict[str, int]) -> bool:
    return (
        offer.available
        and need.refusal(offer) is None
        and free.get(offer.offer_id, 0) >= need.resources.instances
    )
