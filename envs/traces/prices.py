"""Prices that an imported file lacks: of on-demand capacity, and of spot if only availability is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from envs.traces.bundle import TraceBundle
from envs.traces.market import MarketMeta, MarketTrace
from envs.traces.storage import TraceError

_LISTS = {"aws": "aws_on_demand", "gcp": "gcp_prices"}


@dataclass(frozen=True)
class OnDemandPrices:
    """The price list that ships, and a price for what it does not have.

    Attributes:
        bundle: holds the list.
        otherwise_usd_hour: USD an hour of types that the list lacks; None: they are refused.
    """

    bundle: TraceBundle
    otherwise_usd_hour: float | None = None

    def lists(self, meta: MarketMeta) -> bool:
        """Whether the list has the trace's instance type in its region."""
        return self._listed(meta) is not None

    def usd_hour(self, meta: MarketMeta) -> float:
        """What the trace's instance type costs on demand in its region: the list's price at its time 0.

        Raises:
            TraceError: if the list does not say, and nothing was given for what it lacks.
        """
        listed = self._listed(meta)
        price = self.otherwise_usd_hour if listed is None else listed
        if price is None:
            if not meta.instance_type:
                raise TraceError(
                    f"no instance type is named in {meta.zone or meta.region}, so its on-demand price is "
                    "unknown: give --instance-type, or --on-demand none for a market without on-demand offers"
                )
            raise TraceError(
                f"the price list has no on-demand price of {meta.provider} {meta.instance_type} in "
                f"{meta.region}: give it in USD an hour, e.g. --on-demand 3.06, or --on-demand none for a "
                "market without on-demand offers"
            )
        return price

    def offer(self, beside: MarketMeta) -> MarketTrace:
        """The on-demand offer of a spot trace's instance type in its region, at one price all the time.

        Raises:
            TraceError: as `usd_hour`.
        """
        price, source, licence = self.usd_hour(beside), "given as --on-demand", ""
        if self.lists(beside):
            facts = self.bundle.meta["sources"][_LISTS[beside.provider]]
            source, licence = facts["source"], facts["licence"]
        meta = MarketMeta(
            provider=beside.provider,
            region=beside.region,
            zone="",
            instance_type=beside.instance_type,
            market="on_demand",
            start_utc=beside.start_utc,
            source=source,
            licence=licence,
        )
        return MarketTrace(meta, np.zeros(1, np.int64), None, np.array([price]))

    def _listed(self, meta: MarketMeta) -> float | None:
        try:
            return self.bundle.on_demand_usd_hour(meta.provider, meta.region, meta.instance_type)
        except TraceError:
            return None


def with_on_demand(traces: Sequence[MarketTrace], prices: OnDemandPrices) -> list[MarketTrace]:
    """The traces, and an on-demand offer for each instance type and region that has none among them.

    Raises:
        TraceError: if a price is not known, or one was given that the list makes needless.
    """
    there = {_place(trace.meta) for trace in traces if trace.meta.market == "on_demand"}
    wanted: dict[tuple[str, str, str], MarketMeta] = {}
    for trace in traces:
        place, meta = _place(trace.meta), trace.meta
        if place not in there:
            # The offer is there from the first moment on that one of its spot zones is.
            start = min(meta.start_utc, wanted.get(place, meta).start_utc)
            wanted[place] = replace(meta, start_utc=start)
    if prices.otherwise_usd_hour is not None and all(prices.lists(meta) for meta in wanted.values()):
        raise TraceError(
            f"--on-demand {prices.otherwise_usd_hour:g} is for instance types that the price list does not "
            "have, and it has all of these: leave --on-demand out"
        )
    return [*traces, *(prices.offer(meta) for meta in wanted.values())]


@dataclass(frozen=True)
class SpotPrice:
    """What spot capacity costs all the time, where a file holds its availability only.

    Attributes:
        amount: USD an hour, or a share of the on-demand price.
        is_share: whether it is the share.
    """

    amount: float
    is_share: bool = False

    def beside(self, meta: MarketMeta, prices: OnDemandPrices) -> float:
        """USD an hour of a trace's offer. Raises TraceError where the on-demand price is not known."""
        return self.amount * prices.usd_hour(meta) if self.is_share else self.amount


def with_spot_price(
    traces: Sequence[MarketTrace], price: SpotPrice, prices: OnDemandPrices
) -> list[MarketTrace]:
    """The traces, with `price` for those that have none.

    Raises:
        TraceError: if all have prices, or an on-demand price that a share refers to is not known.
    """
    if all(trace.price_usd_hour is not None for trace in traces):
        raise TraceError("the file holds prices: leave --price out")
    return [
        trace
        if trace.price_usd_hour is not None
        else replace(trace, price_usd_hour=np.full(len(trace.times_s), price.beside(trace.meta, prices)))
        for trace in traces
    ]


def parse_usd_hour(text: str) -> float:
    """A price. Raises ValueError unless it is a positive number."""
    value = float(text)
    if not 0.0 < value < math.inf:
        raise ValueError(f"{text} is no price")
    return value


def _place(meta: MarketMeta) -> tuple[str, str, str]:
    return meta.provider, meta.region, meta.instance_type
