"""Google Compute Engine behind the scheduler's interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from google.api_core import exceptions as api

from deploy.model.instances import InstanceReport, LaunchRequest, Offer
from deploy.providers.base import CapacityError, PartialError, ProviderError, QuotaError, RefusedError
from deploy.providers.calls import CHANGE_S, Calls
from deploy.providers.config import Place
from deploy.providers.gcp import describe, names
from deploy.providers.gcp.clients import RETRY, TIMEOUT_S, Clients
from deploy.providers.gcp.config import GcpConfig
from deploy.providers.gcp.errors import gcp_errors, reason_of
from deploy.providers.gcp.launch import Launcher
from deploy.providers.gcp.listing import ENDS, Done, Listing, by_target
from deploy.providers.gcp.offers import OfferBook
from deploy.providers.memory import KEPT_S, Memory
from deploy.providers.offers import Availability

_AT_ONCE = 8
"""Ends that one region is asked for at the same time: each is a call of its own."""
_OVERLAP_S = 120.0
"""Operations are listed again from so long before the latest look: clocks differ, and lists lag."""


class GcpProvider:
    """Implements `Provider` on Compute Engine; see there. Labels and operations are the truth.

    Args:
        config: what may be rented.
        clients: of Compute Engine; None: new ones.
        now: epoch seconds.

    Raises (when made):
        ConfigError: if the price list or the certificate cannot be used.
        ProviderError: if the state folder cannot be used.
    """

    name = names.PROVIDER

    def __init__(
        self, config: GcpConfig, clients: Clients | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self.config = config
        self._now = now
        self._places = config.places()
        self.clients = Clients(config.endpoint_url) if clients is None else clients
        self._calls = Calls(names.PROVIDER)
        self.availability = Availability(
            None if config.state_folder is None else config.state_folder / "availability.json",
            config.cool_down_s,
            config.cool_down_most_s,
        )
        self._offers = OfferBook(config, config.prices(), self._places, self.availability)
        self._launcher = Launcher(self.clients, config)
        self._listing = Listing(self.clients, self._calls, config, now)
        self._memory = Memory(config.visible_within_s, self._interrupted)
        self._looked_s: dict[str, float] = {}
        """When all regions answered last, by deployment."""
        self._silent: Mapping[str, ProviderError] = {}
        """Regions that did not answer in the latest `describe`: what runs there is not known."""

    def offers(self) -> Sequence[Offer]:
        """Everything configured, with the list's prices of now; see `Provider.offers`."""
        return self._offers.all(self._now(), self._silent)

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """Rent one instance of one offer; see `Provider.launch`."""
        place = names.find(self._places, request.offer_id)
        if request.deployment not in self._looked_s:
            # Rented before this process began, perhaps.
            self._find(request, place)
        known = self._memory.by_token(request.deployment, request.client_token)
        if known is not None:
            self._same(known, place)
            return known
        if place.region in self._silent:
            raise ProviderError(f"nothing is launched where nothing is seen: {self._silent[place.region]}")
        now_s = self._now()
        if (
            self._memory.running(request.deployment, place.offer_id)
            >= self.config.instance_types[place.instance_type].quota
        ):
            raise QuotaError(f"{place.offer_id}: as many instances run as `quota` allows")
        above = self._offers.above_limit(place, request.max_price_usd_hour, now_s)
        if above:
            raise CapacityError(f"{place.offer_id}: {above}")
        try:
            one = self._calls.one(
                "launch", CHANGE_S, place.region, lambda: self._launcher.run(request, place)
            )
        except CapacityError as error:
            self.availability.down(place.offer_id, self._now(), str(error))
            raise
        except QuotaError as error:
            self.availability.hold(place.offer_id, self._now() + self.config.cool_down_s, str(error))
            raise
        report = describe.described(one, self.config, ()) if one is not None else self._gone(request)
        self._same(report, place)
        now_s = self._now()
        if report.state.live:
            self.availability.up(report.offer_id, now_s)
        tags = {"deployment": request.deployment, "job_id": request.job_id, "task": request.task}
        report = replace(report, client_token=request.client_token, tags=tags)
        self._memory.remember(report, request.deployment, place.region, now_s, seen=False)
        return report

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """One call for each 500 instances, one for each 500 operations; see `Provider.describe`."""
        began_s = self._now()
        instances, silent = self._listing.instances(names.DEPLOYMENT, names.label(deployment))
        listed = {one.name: one for one in instances}
        operations, also_silent = self._operations(deployment)
        silent = {**also_silent, **silent}
        self._silent = silent
        now_s = self._now()
        reports: dict[str, InstanceReport] = {}
        for name, one in listed.items():
            report = describe.described(one, self.config, operations.get(name, ()))
            reports[name] = self._told(name, report, deployment)
        for name, done in operations.items():
            if name not in listed:
                over = self._ended(name, deployment, done)
                if over is not None:
                    reports[name] = over
        answered = {
            name: report
            for name, report in reports.items()
            if self.config.region_of(_zone(report.offer_id)) not in silent
        }
        for name, report in answered.items():
            region = self.config.region_of(_zone(report.offer_id))
            self._memory.remember(report, deployment, region, now_s, seen=name in listed)
        found = self._memory.bridged(answered.values(), deployment, silent, now_s)
        if silent:
            raise PartialError(found, silent)
        self._looked_s[deployment] = began_s
        return found

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances, each by a call of its own; see `Provider.terminate`."""
        by_region: dict[str, list[tuple[str, str]]] = {}
        for name, zone in self._zones(instance_ids).items():
            by_region.setdefault(self.config.region_of(zone), []).append((zone, name))
        asks = {region: partial(self._end, ends) for region, ends in by_region.items()}
        answers, failed = self._calls.each("end of instances", CHANGE_S, asks)
        told = [name for region in answers for _, name in by_region[region]]
        if self._memory.stopping(told):
            self.availability.release()
        for error in failed.values():
            raise error

    def close(self) -> None:
        """Let go of connections. Instances stay."""
        self.clients.close()

    # Renting.

    def _same(self, report: InstanceReport, place: Place) -> None:
        if report.offer_id != place.offer_id:
            raise RefusedError(f"gcp: this client token was used for {report.offer_id}")

    def _find(self, request: LaunchRequest, place: Place) -> None:
        """Look whether this client token has an instance. Raises ProviderError, also if that is not known."""
        found, silent = self._listing.instances(names.TOKEN, names.label(request.client_token))
        if place.region in silent:
            raise silent[place.region]
        for one in found:
            if one.labels.get(names.DEPLOYMENT) == names.label(request.deployment):
                report = describe.described(one, self.config, ())
                report = self._told(one.name, report, request.deployment, request.client_token)
                region = self.config.region_of(_zone(report.offer_id))
                self._memory.remember(report, request.deployment, region, self._now(), seen=True)

    def _gone(self, request: LaunchRequest) -> InstanceReport:
        """An instance that was rented, and has ended since. Raises ProviderError if nothing tells when."""
        name = names.instance_name(request)
        operations, _ = self._listing.operations(lambda op: op.target == name and op.kind == "insert")
        report = self._ended(name, request.deployment, by_target(operations).get(name, []))
        if report is None:
            raise ProviderError(f"gcp: {name} is not visible yet: try again")
        return report

    def _end(self, ends: Sequence[tuple[str, str]]) -> None:
        with ThreadPoolExecutor(min(_AT_ONCE, len(ends))) as pool:
            failed = [error for error in pool.map(self._end_one, ends) if error is not None]
        if failed:
            raise failed[0]

    def _end_one(self, end: tuple[str, str]) -> ProviderError | None:
        zone, name = end
        try:
            with gcp_errors(f"gcp {zone}: end of {name}"):
                self.clients.instances.delete_unary(
                    project=self.config.project, zone=zone, instance=name, retry=RETRY, timeout=TIMEOUT_S
                )
        except ProviderError as error:
            if reason_of(error.__cause__) == "resourceNotReady":
                return None
            # A launch returns only once its instance can be got, so what is not there has ended.
            if not isinstance(error.__cause__, api.NotFound):
                return error
        return None

    def _zones(self, instance_ids: Sequence[str]) -> dict[str, str]:
        """Zones of instances, by name; ended ones and those that never were are left out."""
        found: dict[str, str] = {}
        for name in dict.fromkeys(instance_ids):
            known = self._memory.get(name)
            if known is None:
                # A hash of the offer is in the name: it says where to look.
                for place in self._places.values():
                    if names.may_be(name, place):
                        found[name] = place.zone
            elif known.report.state.live:
                found[name] = _zone(known.report.offer_id)
        return found

    # What is seen.

    def _operations(self, deployment: str) -> tuple[Mapping[str, Sequence[Done]], dict[str, ProviderError]]:
        """On instances since the latest look, by name; of unknown ended ones, back to their insert."""
        since_s = self._looked_s.get(deployment, self._now() - KEPT_S) - _OVERLAP_S
        wanting: set[str] = set()

        def enough(op: Done) -> bool:
            ends_unknown = op.kind in ENDS and self._memory.get(op.target) is None
            if op.kind == "insert":
                wanting.discard(op.target)
            elif ends_unknown and names.token_of(op.target, deployment, self._places) is not None:
                wanting.add(op.target)
            return op.began_s < since_s and not wanting

        operations, silent = self._listing.operations(enough)
        return by_target(operations), silent

    def _told(
        self, name: str, report: InstanceReport, deployment: str, token: str | None = None
    ) -> InstanceReport:
        """With the client token and the tags as they were given: labels may hold hashes of them."""
        known = self._memory.get(name)
        if known is not None:
            return replace(report, client_token=known.report.client_token, tags=known.report.tags)
        found = names.token_of(name, deployment, self._places)
        own = token if token is not None else found[0] if found is not None else report.client_token
        return replace(report, client_token=own, tags={**report.tags, "deployment": deployment})

    def _ended(self, name: str, deployment: str, operations: Sequence[Done]) -> InstanceReport | None:
        """An instance that is listed no more; None for others', and where nothing tells of its end."""
        known = self._memory.get(name)
        if known is None:
            return describe.ended(name, deployment, self._places, operations)
        report = known.report
        if known.deployment != deployment:
            return None
        return describe.at_end(report, operations) if report.ended_s is None else report

    def _interrupted(self, report: InstanceReport, now_s: float) -> None:
        # Not what was interrupted long ago and is seen only now.
        fresh = report.ended_s is not None and now_s - report.ended_s < self.config.cool_down_s
        if fresh and report.offer_id in self._places:
            self.availability.down(report.offer_id, now_s, "an instance was interrupted just now")


def _zone(offer_id: str) -> str:
    """Of an offer: PROVIDER/ZONE/TYPE/MARKET."""
    return offer_id.split("/")[1]
