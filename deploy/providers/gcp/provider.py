"""Google Compute Engine behind the scheduler's interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

from google.api_core import exceptions as api

from spotweave.deploy.model.instances import InstanceReport, LaunchRequest
from spotweave.deploy.node.metadata import NOTICE_S
from spotweave.deploy.providers.base import CapacityError, PartialError, ProviderError
from spotweave.deploy.providers.cloud import KEPT_S, CloudProvider, Quote
from spotweave.deploy.providers.config import Place
from spotweave.deploy.providers.gcp import listing
from spotweave.deploy.providers.gcp.clients import RETRY, TIMEOUT_S, Clients, gcp_errors, reason_of
from spotweave.deploy.providers.gcp.config import (
    DEPLOYMENT,
    TOKEN,
    GcpConfig,
    instance_name,
    label,
    may_be,
    token_of,
)
from spotweave.deploy.providers.gcp.launch import Launcher
from spotweave.deploy.providers.gcp.listing import ENDS, Done, Listing, by_target
from spotweave.deploy.providers.gcp.prices import price_at, until

NEVER_RAN_S = 1.0
"""No free first hour. A failed insert costs nothing: it is reported as ended when it began."""
_AT_ONCE = 8  # ends that one region is asked for at the same time: each is a call of its own
_OVERLAP_S = 120.0
"""Operations are listed again from so long before the latest look: clocks differ, and lists lag."""


class GcpProvider(CloudProvider[GcpConfig]):
    """Implements `Provider` on Compute Engine by its labels and operations; see `CloudProvider`."""

    name = GcpConfig.provider
    notice_s: ClassVar[float] = NOTICE_S
    keys: ClassVar[str] = "regions and instance_types"

    def __init__(
        self, config: GcpConfig, clients: Clients | None = None, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(config, now)
        self.clients = Clients(config.endpoint_url) if clients is None else clients
        self._prices = config.prices()
        self._steps = {name: self._prices.steps(place) for name, place in self._places.items()}
        self._on_demand = {
            name: self._prices.steps(replace(place, market="on_demand"))
            for name, place in self._places.items()
        }
        self._launcher = Launcher(self.clients, config)
        self._listing = Listing(self.clients, self._calls, config, now)
        self._looked_s: dict[str, float] = {}
        """When all regions answered last, by deployment."""

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """One call for each 500 instances, one for each 500 operations; see `Provider.describe`."""
        began_s = self._now()
        instances, silent = self._listing.instances(DEPLOYMENT, label(deployment))
        listed = {one.name: one for one in instances}
        operations, also_silent = self._operations(deployment)
        silent = {**also_silent, **silent}
        self._silent = silent
        now_s = self._now()
        reports: dict[str, InstanceReport] = {}
        for name, one in listed.items():
            report = listing.described(one, self.config, operations.get(name, ()))
            reports[name] = self._told(name, report, deployment)
        for name, done in operations.items():
            if name not in listed:
                over = self._ended(name, deployment, done)
                if over is not None:
                    reports[name] = over
        answered = {name: report for name, report in reports.items() if self._region(report) not in silent}
        for name, report in answered.items():
            self._memory.remember(report, deployment, self._region(report), now_s, seen=name in listed)
        found = self._memory.bridged(answered.values(), deployment, silent, now_s)
        if silent:
            raise PartialError(found, silent)
        self._looked_s[deployment] = began_s
        return found

    def close(self) -> None:
        """Let go of connections. Instances stay."""
        self.clients.close()

    def _quote(self, place: Place, now_s: float) -> Quote:
        steps = self._steps[place.offer_id]
        return Quote(
            hardware=self._prices.hardware(place.instance_type),
            price_usd_hour=price_at(steps, now_s),
            on_demand_usd_hour=price_at(self._on_demand[place.offer_id], now_s),
            price_steps=until(steps, now_s),
            disk_usd_gib_month=self._prices.disk_usd_gib_month(place.region, self.config.disk_type),
            free_first_s=NEVER_RAN_S,
            reason=self._above_limit(place, now_s),
        )

    def _above_limit(self, place: Place, now_s: float) -> str:
        """Why a limit on the spot price forbids it now; "" if none does."""
        limit = self.config.instance_types[place.instance_type].max_price_usd_hour
        price = price_at(self._steps[place.offer_id], now_s)
        if place.market == "spot" and limit is not None and price > limit:
            return f"{price} USD/h now, more than the limit of {limit}"
        return ""

    # Renting.

    def _recall(self, request: LaunchRequest, place: Place) -> None:
        if request.deployment in self._looked_s:
            return
        found, silent = self._listing.instances(TOKEN, label(request.client_token))
        if place.region in silent:
            raise silent[place.region]
        for one in found:
            if one.labels.get(DEPLOYMENT) == label(request.deployment):
                report = listing.described(one, self.config, ())
                report = self._told(one.name, report, request.deployment, request.client_token)
                region = self._region(report)
                self._memory.remember(report, request.deployment, region, self._now(), seen=True)

    def _admit(self, place: Place) -> None:
        above = self._above_limit(place, self._now())
        if above:
            raise CapacityError(f"{place.offer_id}: {above}")

    def _rent(self, request: LaunchRequest, place: Place) -> InstanceReport:
        one = self._launcher.run(request, place)
        if one is not None:
            return listing.described(one, self.config, ())
        # It was rented, and has ended since.
        name = instance_name(request)
        operations, _ = self._listing.operations(lambda op: op.target == name and op.kind == "insert")
        report = self._ended(name, request.deployment, by_target(operations).get(name, []))
        if report is None:
            raise ProviderError(f"gcp: {name} is not visible yet: try again")
        return report

    def _living(self, instance_ids: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, ProviderError]]:
        by_region: dict[str, list[str]] = {}
        for name in instance_ids:
            zone = self._zone(name)
            if zone:
                by_region.setdefault(self.config.region_of(zone), []).append(name)
        return by_region, {}

    def _zone(self, name: str) -> str:
        """Zone of an instance; "" for one that has ended or never was."""
        known = self._memory.get(name)
        if known is not None:
            return _zone_of(known.report) if known.report.state.live else ""
        # A hash of the offer is in the name: it says where to look.
        return next((place.zone for place in self._places.values() if may_be(name, place)), "")

    def _end(self, region: str, instance_ids: Sequence[str]) -> None:
        with ThreadPoolExecutor(min(_AT_ONCE, len(instance_ids))) as pool:
            failed = [error for error in pool.map(self._end_one, instance_ids) if error is not None]
        if failed:
            raise failed[0]

    def _end_one(self, name: str) -> ProviderError | None:
        zone = self._zone(name)
        if not zone:
            return None
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

    # What is seen.

    def _operations(self, deployment: str) -> tuple[Mapping[str, Sequence[Done]], dict[str, ProviderError]]:
        """On instances since the latest look, by name; of unknown ended ones, back to their insert."""
        since_s = self._looked_s.get(deployment, self._now() - KEPT_S) - _OVERLAP_S
        wanting: set[str] = set()

        def enough(op: Done) -> bool:
            ends_unknown = op.kind in ENDS and self._memory.get(op.target) is None
            if op.kind == "insert":
                wanting.discard(op.target)
            elif ends_unknown and token_of(op.target, deployment, self._places) is not None:
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
        found = token_of(name, deployment, self._places)
        own = token if token is not None else found[0] if found is not None else report.client_token
        return replace(report, client_token=own, tags={**report.tags, "deployment": deployment})

    def _ended(self, name: str, deployment: str, operations: Sequence[Done]) -> InstanceReport | None:
        """An instance that is listed no more; None for others', and where nothing tells of its end."""
        known = self._memory.get(name)
        if known is None:
            return listing.ended(name, deployment, self._places, operations)
        report = known.report
        if known.deployment != deployment:
            return None
        return listing.at_end(report, operations) if report.ended_s is None else report

    def _region(self, report: InstanceReport) -> str:
        return self.config.region_of(_zone_of(report))


def _zone_of(report: InstanceReport) -> str:
    return report.offer_id.split("/")[1]
