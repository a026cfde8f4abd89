"""Offers from the price list and our own record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deploy.model.instances import Offer
from deploy.node.metadata import NOTICE_S
from deploy.providers.base import ProviderError
from deploy.providers.config import Place
from deploy.providers.gcp.config import GcpConfig
from deploy.providers.gcp.prices import PriceList, price_at, until
from deploy.providers.offers import Availability, offer

MINIMUM_S = 60.0
"""https://cloud.google.com/compute/vm-instance-pricing"""
NEVER_RAN_S = 1.0
"""There is no free first hour. An insert that failed costs nothing: it is told to have ended as it began."""


class OfferBook:
    """All offers of a configuration. Safe to use from several threads."""

    def __init__(
        self, config: GcpConfig, prices: PriceList, places: Mapping[str, Place], availability: Availability
    ) -> None:
        self._config, self._prices, self._places = config, prices, places
        self._availability = availability
        self._steps = {name: prices.steps(place) for name, place in places.items()}
        self._on_demand = {
            name: prices.steps(replace(place, market="on_demand")) for name, place in places.items()
        }

    def price_usd_hour(self, place: Place, now_s: float) -> float:
        """In force at a moment."""
        return price_at(self._steps[place.offer_id], now_s)

    def above_limit(self, place: Place, limit: float | None, now_s: float) -> str:
        """Why a limit on the spot price forbids it now; "" if none does."""
        limits = [
            one for one in (limit, self._config.instance_types[place.instance_type].max_price_usd_hour) if one
        ]
        price = self.price_usd_hour(place, now_s)
        if place.market == "spot" and limits and price > min(limits):
            return f"{price} USD/h now, more than the limit of {min(limits)}"
        return ""

    def all(self, now_s: float, silent: Mapping[str, ProviderError]) -> list[Offer]:
        """Every offer as it is now, in the order of the configuration; not available in silent regions."""
        return [self._offer(place, now_s, silent.get(place.region)) for place in self._places.values()]

    def _offer(self, place: Place, now_s: float, silent: ProviderError | None) -> Offer:
        if silent is not None:
            reason = f"its region is silent: {silent}"
        else:
            reason = self._availability.left_alone(place.offer_id, now_s)
            reason = reason or self.above_limit(place, None, now_s)
        return offer(
            place,
            self._prices.hardware(place.instance_type),
            self._config.instance_types[place.instance_type],
            self._availability.history(place.offer_id, now_s),
            reason=reason,
            price_usd_hour=self.price_usd_hour(place, now_s),
            on_demand_usd_hour=price_at(self._on_demand[place.offer_id], now_s),
            launch_s=self._config.launch_s,
            notice_s=NOTICE_S,
            free_first_s=NEVER_RAN_S,
            billing_minimum_s=MINIMUM_S,
            disk_usd_month=self._config.disk_gib
            * self._prices.disk_usd_gib_month(place.region, self._config.disk_type),
            price_steps=until(self._steps[place.offer_id], now_s),
        )
