"""Amazon EC2 behind the scheduler's interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from deploy.model.instances import InstanceReport, LaunchRequest, Offer
from deploy.providers.aws import describe, launch, names
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.describe import Described
from deploy.providers.aws.launch import Templates
from deploy.providers.aws.notices import Notices
from deploy.providers.aws.offers import OfferBook
from deploy.providers.aws.prices import PriceBook
from deploy.providers.base import CapacityError, PartialError, ProviderError, QuotaError, RefusedError
from deploy.providers.calls import CHANGE_S, LOOK_S, Calls
from deploy.providers.config import Place
from deploy.providers.memory import Memory
from deploy.providers.offers import Availability


class AwsProvider:
    """Implements `Provider` on EC2; see there. EC2 and its tags are the truth; memory bridges its delays.

    Args:
        config: what may be rented.
        session: of boto3; None: a new one.
        now: epoch seconds.

    Raises (when made):
        ConfigError: if the price list or the certificate cannot be used.
        ProviderError: if the state folder cannot be used, or there is no such profile.
    """

    name = names.PROVIDER

    def __init__(self, config: AwsConfig, session: Any = None, now: Callable[[], float] = time.time) -> None:
        self.config = config
        self._now = now
        self._places = config.places()
        self._ca_pem = config.ca_pem()
        catalogue = config.prices()
        self.clients = Clients(config.profile, config.endpoint_url, session)
        self._calls = Calls(names.PROVIDER)
        zones = {region: list(part.subnets) for region, part in config.regions.items()}
        self.prices = PriceBook(
            self.clients, self._calls, zones, list(config.instance_types), config.prices_every_s
        )
        self.availability = Availability(
            None if config.state_folder is None else config.state_folder / "availability.json",
            config.cool_down_s,
            config.cool_down_most_s,
        )
        self._offers = OfferBook(config, catalogue, self._places, self.prices, self.availability)
        self._templates = Templates(self.clients, config)
        self._notices = Notices(self.clients, self._calls, config.queues, config.visible_within_s)
        self._memory = Memory(config.visible_within_s, self._interrupted)
        self._silent: Mapping[str, ProviderError] = {}
        """Regions that did not answer in the latest `describe`: what runs there is not known."""

    def offers(self) -> Sequence[Offer]:
        """Everything configured, with the prices of now; see `Provider.offers`."""
        now_s = self._now()
        self.prices.refresh(now_s)
        return self._offers.all(now_s, self._silent)

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """Rent one instance of one offer; see `Provider.launch`."""
        place = names.find(self._places, request.offer_id)
        known = self._memory.by_token(request.deployment, request.client_token)
        if known is not None:
            self._same(known, place)
            return known
        if place.region in self._silent:
            raise ProviderError(f"nothing is launched where nothing is seen: {self._silent[place.region]}")
        self._admit(request.deployment, place)
        try:
            one = self._calls.one(
                "launch",
                CHANGE_S,
                place.region,
                lambda: launch.run(self.clients, self.config, self._templates, request, place, self._ca_pem),
            )
        except CapacityError as error:
            # A limit of this one request says nothing of the offer.
            if "SpotMaxPriceTooLow" not in str(error):
                self.availability.down(place.offer_id, self._now(), str(error))
            raise
        except QuotaError as error:
            self.availability.hold(place.offer_id, self._now() + self.config.cool_down_s, str(error))
            raise
        self._same(one.report, place)
        now_s = self._now()
        self.availability.up(one.report.offer_id, now_s)
        # What EC2 answers to a launch has all tags only once it is consistent; we know what we sent.
        report = replace(
            one.report,
            client_token=request.client_token,
            tags={"deployment": request.deployment, "job_id": request.job_id, "task": request.task},
        )
        self._memory.remember(report, request.deployment, place.region, now_s, seen=False)
        return report

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """One call for each region and 1,000 instances, one for each queue; see `Provider.describe`."""
        dated = self._memory.ended()
        answers, silent = self._calls.each(
            "instances",
            LOOK_S,
            {region: partial(self._look, region, deployment, dated.keys()) for region in self.config.regions},
        )
        self._silent = silent
        if not answers:
            raise next(iter(silent.values()))
        now_s = self._now()
        found = [
            describe.ended_at(one, dated.get(one.report.instance_id) or ends.get(one.spot_request) or now_s)
            if describe.undated(one)
            else one
            for seen, ends in answers.values()
            for one in seen
        ]
        for one in found:
            self._memory.remember(one.report, one.deployment, one.region, now_s, seen=True)
        reports = self._memory.bridged((one.report for one in found), deployment, silent, now_s)
        reports = self._notices.added(reports, now_s)
        if silent:
            raise PartialError(reports, silent)
        return reports

    def _look(
        self, region: str, deployment: str, dated: Collection[str]
    ) -> tuple[list[Described], Mapping[str, float]]:
        """A region's instances, and when spot requests ended whose instance's end EC2 does not date."""
        found = describe.of_deployment(self.clients, self.config, region, deployment)
        requests = [
            one.spot_request
            for one in found
            if describe.undated(one) and one.spot_request and one.report.instance_id not in dated
        ]
        return found, describe.spot_ends(self.clients, region, requests)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances; see `Provider.terminate`."""
        by_region, errors = self._by_region(instance_ids)
        asks = {
            region: partial(launch.terminate, self.clients, region, ids, self._is_new)
            for region, ids in by_region.items()
        }
        answers, failed = self._calls.each("end of instances", CHANGE_S, asks)
        told = [name for region in answers for name in by_region[region]]
        if self._memory.stopping(told):
            self.availability.release()
        for error in (failed | errors).values():
            raise error

    def close(self) -> None:
        """Let go of connections. Instances stay."""
        self.clients.close()

    # Renting.

    def _same(self, report: InstanceReport, place: Place) -> None:
        if report.offer_id != place.offer_id:
            raise RefusedError(f"aws: this client token was used for {report.offer_id}")

    def _admit(self, deployment: str, place: Place) -> None:
        """The configured quota; EC2 checks the account's own."""
        running = self._memory.running(deployment, place.offer_id)
        if running >= self.config.instance_types[place.instance_type].quota:
            raise QuotaError(f"{place.offer_id}: as many instances run as `quota` allows")

    # Memory.

    def _interrupted(self, report: InstanceReport, now_s: float) -> None:
        # Not what was interrupted long ago and is seen only now.
        fresh = report.ended_s is not None and now_s - report.ended_s < self.config.cool_down_s
        if fresh and report.offer_id in self._places:
            self.availability.down(report.offer_id, now_s, "an instance was interrupted just now")

    def _is_new(self, name: str) -> bool:
        return self._memory.is_new(name, self._now())

    def _by_region(
        self, instance_ids: Sequence[str]
    ) -> tuple[dict[str, list[str]], dict[str, ProviderError]]:
        """Ids that EC2 has, by region; ended ones and those that never were are left out.

        Also the errors of the regions in which the others may be.
        """
        known = {
            name: (found.report, found.region) for name in instance_ids if (found := self._memory.get(name))
        }
        unknown = [name for name in dict.fromkeys(instance_ids) if name not in known]
        errors: dict[str, ProviderError] = {}
        if unknown:
            asks = {
                region: partial(describe.of_ids, self.clients, self.config, region, unknown)
                for region in self.config.regions
            }
            answers, errors = self._calls.each("instances by id", LOOK_S, asks)
            seen = [one for found in answers.values() for one in found]
            known |= {one.report.instance_id: (one.report, one.region) for one in seen}
            if {one.report.instance_id for one in seen}.issuperset(unknown):
                errors = {}
        by_region: dict[str, list[str]] = {}
        for name, (report, region) in known.items():
            if report.state.live:
                by_region.setdefault(region, []).append(name)
        return by_region, errors
