"""The candidate table: what could be rented now, what it costs, and how often it was there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.model.instances import Offer
from deploy.providers.aws.errors import asking
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import ProviderError


@dataclass(frozen=True)
class Candidate:
    """One row.

    Attributes:
        offer: as it is now.
        mean_usd_hour: spot: mean of the latest 24 h; None: not known.
        score: spot placement score of the zone, 1 to 10; None: not known.
    """

    offer: Offer
    mean_usd_hour: float | None
    score: int | None


def candidates(
    provider: AwsProvider,
    now_s: float,
    *,
    gpu: str | None = None,
    max_price_usd_hour: float | None = None,
) -> tuple[list[Candidate], list[str]]:
    """Rows, those that can be rented first, then by price; and why a score is missing, a line for each cause.

    Args:
        provider: to ask.
        now_s: epoch seconds.
        gpu: only with this one.
        max_price_usd_hour: only up to this.

    Raises:
        ProviderError: if EC2 cannot be asked now. Placement scores are done without, and said so.
    """
    wanted = [
        offer
        for offer in provider.offers()
        if (gpu is None or (offer.gpu or "").lower() == gpu.lower())
        and (max_price_usd_hour is None or offer.price_usd_hour <= max_price_usd_hour)
    ]
    scores: dict[tuple[str, str], int] = {}
    trouble = []
    spot = {(offer.region, offer.instance_type) for offer in wanted if offer.market == "spot"}
    for region, instance_type in sorted(spot):
        try:
            for zone, score in _scores(provider, region, instance_type).items():
                scores[zone, instance_type] = score
        except ProviderError as error:
            trouble.append(f"no placement score: {error}")
    rows = [
        Candidate(
            offer,
            provider.prices.mean(offer.zone, offer.instance_type, now_s) if offer.market == "spot" else None,
            scores.get((offer.zone, offer.instance_type)) if offer.market == "spot" else None,
        )
        for offer in wanted
    ]
    rows.sort(key=lambda row: (not row.offer.available, row.offer.price_usd_hour, row.offer.offer_id))
    return rows, trouble


def _scores(provider: AwsProvider, region: str, instance_type: str) -> Mapping[str, int]:
    """By zone name. AWS gives ids of zones, because names differ between accounts."""
    ec2 = provider.clients.get("ec2", region)
    with asking(f"aws {region}: placement scores"):
        zones = {
            zone["ZoneId"]: zone["ZoneName"]
            for zone in ec2.describe_availability_zones()["AvailabilityZones"]
        }
        answer = ec2.get_spot_placement_scores(
            InstanceTypes=[instance_type],
            TargetCapacity=1,
            SingleAvailabilityZone=True,
            RegionNames=[region],
        )
    return {
        zones[entry["AvailabilityZoneId"]]: entry["Score"]
        for entry in answer["SpotPlacementScores"]
        if entry.get("AvailabilityZoneId") in zones
    }
