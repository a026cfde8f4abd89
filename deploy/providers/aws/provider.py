"""Amazon EC2 behind the scheduler's interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from spotweave.deploy.model.instances import InstanceReport, LaunchRequest, Offer
from spotweave.deploy.providers.aws import launch
from spotweave.deploy.providers.aws.clients import Clients, aws_errors
from spotweave.deploy.providers.aws.config import DEPLOYMENT, AwsConfig
from spotweave.deploy.providers.aws.launch import Launcher, terminate
from spotweave.deploy.providers.aws.notices import NOTICE_S, Notices
from spotweave.deploy.providers.aws.prices import PriceBook
from spotweave.deploy.providers.base import PartialError, ProviderError
from spotweave.deploy.providers.cloud import LOOK_S, CloudProvider, Quote
from spotweave.deploy.providers.config import Place

FREE_FIRST_S = 3600.0  # an instance that EC2 interrupts within its first hour costs nothing
NEVER_RAN_S = 1.0
"""A launch that fails costs nothing on demand either; its instance is told to have ended when it began."""


class AwsProvider(CloudProvider[AwsConfig]):
    """Implements `Provider` on EC2, in a session of boto3 (None: a new one); see `CloudProvider`.

    Making one raises ProviderError also if there is no such profile.
    """

    name = AwsConfig.provider
    notice_s: ClassVar[float] = NOTICE_S
    keys: ClassVar[str] = "regions, subnets and instance_types"

    def __init__(self, config: AwsConfig, session: Any = None, now: Callable[[], float] = time.time) -> None:
        super().__init__(config, now)
        self._catalogue = config.prices()
        self.clients = Clients(config.profile, config.endpoint_url, session)
        zones = {region: list(part.subnets) for region, part in config.regions.items()}
        self.prices = PriceBook(
            self.clients, self._calls, zones, list(config.instance_types), config.prices_every_s
        )
        self._launcher = Launcher(self.clients, config)
        self._notices = Notices(self.clients, self._calls, config.queues, config.visible_within_s)

    def offers(self) -> Sequence[Offer]:
        """Everything configured, with the prices of now; see `Provider.offers`."""
        self.prices.refresh(self._now())
        return super().offers()

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """One call for each region and 1,000 instances, one for each queue; see `Provider.describe`."""
        ended = self._memory.ended()
        answers, silent = self._calls.each(
            "instances",
            LOOK_S,
            {region: partial(self._look, region, deployment, ended.keys()) for region in self.config.regions},
        )
        self._silent = silent
        if not answers:
            raise next(iter(silent.values()))
        now_s = self._now()
        found = []
        for region, listed in answers.items():
            for one in listed:
                found.append(launch.dated(one, ended.get(one.instance_id, now_s)))
                self._memory.remember(found[-1], one.tags["deployment"], region, now_s, seen=True)
        reports = self._notices.added(self._memory.bridged(found, deployment, silent, now_s), now_s)
        if silent:
            raise PartialError(reports, silent)
        return reports

    def _look(self, region: str, deployment: str, known: Collection[str]) -> list[InstanceReport]:
        """A region's instances. Ends that EC2 does not date, and that are not known, spot requests tell."""
        found = launch.listed(self.clients, self.config, region, f"tag:{DEPLOYMENT}", [deployment])
        requests = [
            request
            for one, request in found
            if launch.undated(one) and request and one.instance_id not in known
        ]
        ends = launch.spot_ends(self.clients, region, requests)
        return [launch.dated(one, ends[request]) if request in ends else one for one, request in found]

    def close(self) -> None:
        """Let go of connections. Instances stay."""
        self.clients.close()

    def details(
        self, offers: Sequence[Offer], now_s: float
    ) -> tuple[dict[str, dict[str, float | int | None]], list[str]]:
        """Mean price of 24 h and placement score (1 to 10) by spot offer, where known; and why not."""
        spot = [offer for offer in offers if offer.market == "spot"]
        scores: dict[tuple[str, str], int] = {}
        trouble = []
        for region, instance_type in sorted({(offer.region, offer.instance_type) for offer in spot}):
            try:
                for zone, score in self._scores(region, instance_type).items():
                    scores[zone, instance_type] = score
            except ProviderError as error:
                trouble.append(f"no placement score: {error}")
        found: dict[str, dict[str, float | int | None]] = {
            offer.offer_id: {
                "mean_usd_hour": self.prices.mean(offer.zone, offer.instance_type, now_s),
                "score": scores.get((offer.zone, offer.instance_type)),
            }
            for offer in spot
        }
        return found, trouble

    def _scores(self, region: str, instance_type: str) -> Mapping[str, int]:
        """By zone name. AWS gives ids of zones, because names differ between accounts."""
        ec2 = self.clients.get("ec2", region)
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

    def _quote(self, place: Place, now_s: float) -> Quote:
        on_demand = self._catalogue.usd_hour(place.region, place.instance_type)
        spot = place.market == "spot"
        price = self.prices.latest(place.zone, place.instance_type) if spot else on_demand
        return Quote(
            hardware=self._catalogue.hardware(place.instance_type),
            # EC2 never charges more than on demand; what has no price cannot be rented.
            price_usd_hour=on_demand if price is None else price,
            on_demand_usd_hour=on_demand,
            price_steps=self.prices.steps(place.zone, place.instance_type) if spot else (),
            disk_usd_gib_month=self._catalogue.disk_usd_gib_month(place.region),
            free_first_s=FREE_FIRST_S if spot else NEVER_RAN_S,
            reason=self._no_spot(place, price, now_s) if spot else "",
        )

    def _no_spot(self, place: Place, price: float | None, now_s: float) -> str:
        trouble = self.prices.trouble(place.region, now_s)
        if trouble:
            return trouble
        if price is None:
            return f"EC2 names no spot price for {place.instance_type} in {place.zone}"
        limit = self.config.instance_types[place.instance_type].max_price_usd_hour
        if limit is not None and price > limit:
            return f"{price} USD/h now, more than max_price_usd_hour of {limit}"
        return ""

    def _rent(self, request: LaunchRequest, place: Place) -> InstanceReport:
        return self._launcher.run(request, place)

    def _end(self, region: str, names: Sequence[str]) -> None:
        terminate(self.clients, region, names, lambda name: self._memory.is_new(name, self._now()))

    def _living(self, names: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, ProviderError]]:
        known = {name: (one.report, one.region) for name in names if (one := self._memory.get(name))}
        unknown = [name for name in names if name not in known]
        errors: dict[str, ProviderError] = {}
        if unknown:
            asks = {
                region: partial(launch.of_ids, self.clients, self.config, region, unknown)
                for region in self.config.regions
            }
            answers, errors = self._calls.each("instances by id", LOOK_S, asks)
            known |= {one.instance_id: (one, region) for region, found in answers.items() for one in found}
            if known.keys() >= set(names):
                errors = {}
        by_region: dict[str, list[str]] = {}
        for name, (report, region) in known.items():
            if report.state.live:
                by_region.setdefault(region, []).append(name)
        return by_region, errors
