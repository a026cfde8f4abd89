"""Offers from prices, the price list and our own record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.model.instances import Offer
from deploy.providers.aws.catalogue import Catalogue
from deploy.providers.aws.config import AwsConfig, AwsMarket
from deploy.providers.aws.notices import NOTICE_S
from deploy.providers.aws.prices import PriceBook
from deploy.providers.base import ProviderError
from deploy.providers.config import Place
from deploy.providers.offers import Availability, offer

FREE_FIRST_S = 3600.0
"""An instance that EC2 interrupts within its first hour costs nothing."""
MINIMUM_S = 60.0
NEVER_RAN_S = 1.0
"""A launch that fails costs nothing on demand either; its instance is told to have ended when it began."""


class OfferBook:
    """All offers of a configuration. Safe to use from several threads."""

    def __init__(
        self,
        config: AwsConfig,
        catalogue: Catalogue,
        places: Mapping[str, Place],
        prices: PriceBook,
        availability: Availability,
    ) -> None:
        self._config = config
        self._catalogue = catalogue
        self._places = places
        self._prices = prices
        self._availability = availability

    def all(self, now_s: float, silent: Mapping[str, ProviderError]) -> list[Offer]:
        """Every offer as it is now, in the order of the configuration; not available in silent regions."""
        return [self._offer(place, now_s, silent.get(place.region)) for place in self._places.values()]

    def _offer(self, place: Place, now_s: float, silent: ProviderError | None) -> Offer:
        kind = self._config.instance_types[place.instance_type]
        hardware = self._catalogue.hardware(place.instance_type)
        on_demand = self._catalogue.usd_hour(place.region, place.instance_type)
        history = self._availability.history(place.offer_id, now_s)
        spot = place.market == "spot"
        price = self._prices.latest(place.zone, place.instance_type) if spot else on_demand
        reason = self._reason(place, price, now_s) if silent is None else f"its region is silent: {silent}"
        return offer(
            place,
            hardware,
            kind,
            history,
            reason=reason,
            # EC2 never charges more than on demand; what has no price cannot be rented.
            price_usd_hour=on_demand if price is None else price,
            on_demand_usd_hour=on_demand,
            launch_s=self._config.launch_s,
            notice_s=NOTICE_S,
            free_first_s=FREE_FIRST_S if spot else NEVER_RAN_S,
            billing_minimum_s=MINIMUM_S,
            disk_usd_month=self._config.disk_gib * self._catalogue.disk_usd_gib_month(place.region),
            price_steps=self._prices.steps(place.zone, place.instance_type) if spot else (),
        )

    def _reason(self, place: Place, price: float | None, now_s: float) -> str:
        """Why it is not available; "" if it is."""
        left = self._availability.left_alone(place.offer_id, now_s)
        if left:
            return left
        if place.market == "on_demand":
            return ""
        trouble = self._prices.trouble(place.region, now_s)
        if trouble:
            return trouble
        if price is None:
            return f"EC2 names no spot price for {place.instance_type} in {place.zone}"
        limit = self._config.instance_types[place.instance_type].max_price_usd_hour
        if limit is not None and price > limit:
            return f"{price} USD/h now, more than max_price_usd_hour of {limit}"
        return ""


# The account's vCPU quotas: which one a type and a market count against.

_CODES: dict[tuple[AwsMarket, str], str] = {
    ("spot", "standard"): "L-34B43A08",
    ("on_demand", "standard"): "L-1216C47A",
    ("spot", "g"): "L-3819A6DF",
    ("on_demand", "g"): "L-DB2E81BA",
    ("spot", "p"): "L-7212CCBC",
    ("on_demand", "p"): "L-417A185B",
}
"""From the console's page of EC2 quotas: standard families, G and VT, P2 to P4."""
_STANDARD = frozenset("acdhimrtz")


def quota_code(instance_type: str, market: AwsMarket) -> str | None:
    """Code of the quota; None for families that this list does not know."""
    family = instance_type.partition(".")[0]
    if family.startswith(("g", "vt")):
        return _CODES[market, "g"]
    if family.startswith(("p2", "p3", "p4")):
        return _CODES[market, "p"]
    if family[0] in _STANDARD and not family.startswith(("inf", "trn", "dl", "hpc", "mac")):
        return _CODES[market, "standard"]
    return None


def vcpus_allowed(client: Any, code: str) -> float:
    """The quota's value now."""
    value = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"]
    return float(value)
