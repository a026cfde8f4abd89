"""What EC2 says of spot offers beyond price and capacity: placement scores, and the mean price of a day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deploy.model.instances import Offer
from deploy.providers.aws.errors import aws_errors
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import ProviderError


def details(
    provider: AwsProvider, offers: Sequence[Offer], now_s: float
) -> tuple[dict[str, dict[str, float | int | None]], list[str]]:
    """Per spot offer, "mean_usd_hour" of the latest 24 h and "score", 1 to 10; None where it is not known.

    Args:
        provider: to ask.
        offers: of it.
        now_s: epoch seconds.

    Returns:
        By offer id; and why a score is missing, a line for each cause.

    Raises:
        ProviderError: if EC2 cannot be asked now for prices.
    """
    spot = [offer for offer in offers if offer.market == "spot"]
    scores: dict[tuple[str, str], int] = {}
    trouble = []
    for region, instance_type in sorted({(offer.region, offer.instance_type) for offer in spot}):
        try:
            for zone, score in _scores(provider, region, instance_type).items():
                scores[zone, instance_type] = score
        except ProviderError as error:
            trouble.append(f"no placement score: {error}")
    found: dict[str, dict[str, float | int | None]] = {
        offer.offer_id: {
            "mean_usd_hour": provider.prices.mean(offer.zone, offer.instance_type, now_s),
            "score": scores.get((offer.zone, offer.instance_type)),
        }
        for offer in spot
    }
    return found, trouble


def _scores(provider: AwsProvider, region: str, instance_type: str) -> Mapping[str, int]:
    """By zone name. AWS gives ids of zones, because names differ between accounts."""
    ec2 = provider.clients.get("ec2", region)
    with aws_errors(f"aws {region}: placement scores"):
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
