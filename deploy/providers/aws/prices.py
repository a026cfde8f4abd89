"""Spot prices: asked for page by page, afterwards only what is new."""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from spotweave.deploy.providers.aws.clients import Clients, aws_errors
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.providers.cloud import LOOK_S, Calls

KEPT_S = 86_400.0
STALE_S = 1800.0  # when a region has not answered for so long, its prices are not believed any more
_PRODUCT = "Linux/UNIX"
_PAGE = 1000
AT_ONCE = 2
"""Regions of a refresh that were asked before: many of them take turns, so that no pass makes many calls."""
Key = tuple[str, str]  # zone and instance type


class PriceBook:
    """Spot prices of zones and types over the latest 24 h. Safe to use from several threads.

    A region is asked at most every `every_s`; of many regions, `AT_ONCE` with each refresh.
    """

    def __init__(
        self,
        clients: Clients,
        calls: Calls,
        zones: Mapping[str, Sequence[str]],
        types: Sequence[str],
        every_s: float,
    ) -> None:
        self._clients, self._calls = clients, calls
        self._zones, self._types, self._every_s = zones, list(types), every_s
        self._series: dict[Key, list[tuple[float, float]]] = {}
        self._steps: dict[Key, tuple[tuple[float, float], ...]] = {}
        self._seen_s: dict[str, float] = {}
        self._asked_s: dict[str, float] = {}
        self._answered_s: dict[str, float] = {}
        self._failed: dict[str, ProviderError] = {}
        self._lock = threading.Lock()

    def refresh(self, now_s: float) -> None:
        """Ask the new regions, and those whose turn it is. Raises ProviderError if no region answers."""
        with self._lock:
            due = [one for one in self._zones if now_s - self._asked_s.get(one, -math.inf) >= self._every_s]
            new = [one for one in due if one not in self._asked_s]
            longest_ago = sorted((one for one in due if one in self._asked_s), key=self._asked_s.__getitem__)
            asked = new + longest_ago[:AT_ONCE]
            self._asked_s |= dict.fromkeys(asked, now_s)
            # What was in force at the start comes too, so the latest moment seen is where to go on.
            starts = {region: self._seen_s.get(region, now_s - KEPT_S) for region in asked}
            asks = {region: partial(self._rows, region, starts[region]) for region in asked}
            answers, failed = self._calls.each("spot prices", LOOK_S, asks)
            for region, rows in answers.items():
                self._failed.pop(region, None)
                self._answered_s[region] = now_s
                self._take(region, rows, starts[region], now_s)
            self._failed |= failed
            if self._zones and len(self._failed) == len(self._zones):
                raise next(iter(self._failed.values()))

    def trouble(self, region: str, now_s: float) -> str:
        """Why a region's prices cannot be believed now; "" if they can."""
        error = self._failed.get(region)
        if error is None or now_s - self._answered_s.get(region, -STALE_S) < STALE_S:
            return ""
        return f"no current spot prices: {error}"

    def latest(self, zone: str, instance_type: str) -> float | None:
        """USD per hour now; None: EC2 names no price, so it does not offer this type there."""
        series = self._series.get((zone, instance_type))
        return series[-1][1] if series else None

    def steps(self, zone: str, instance_type: str) -> tuple[tuple[float, float], ...]:
        """(epoch seconds, USD per hour) of each change as EC2 dates it, after the price of 24 h ago."""
        return self._steps.get((zone, instance_type), ())

    def mean(self, zone: str, instance_type: str, now_s: float) -> float | None:
        """Mean over time of the latest 24 h, as far as it is known; None: never seen."""
        series = self._series.get((zone, instance_type))
        if not series:
            return None
        start_s = max(series[0][0], now_s - KEPT_S)
        points = [(max(time_s, start_s), price) for time_s, price in series if time_s <= now_s]
        if not points or now_s <= start_s:
            return series[-1][1]
        ends = [time_s for time_s, _ in points[1:]] + [now_s]
        paid = sum(price * (end_s - time_s) for (time_s, price), end_s in zip(points, ends, strict=True))
        return paid / (now_s - points[0][0])

    def _rows(self, region: str, start_s: float) -> list[dict[str, Any]]:
        ec2 = self._clients.get("ec2", region)
        with aws_errors(f"aws {region}: spot prices"):
            pages = ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=self._types,
                ProductDescriptions=[_PRODUCT],
                Filters=[{"Name": "availability-zone", "Values": list(self._zones[region])}],
                StartTime=datetime.fromtimestamp(start_s, UTC),
                PaginationConfig={"PageSize": _PAGE},
            )
            return [row for page in pages for row in page["SpotPriceHistory"]]

    def _take(self, region: str, rows: Sequence[Mapping[str, Any]], start_s: float, now_s: float) -> None:
        for row in rows:
            time_s = row["Timestamp"].timestamp()
            self._keep((row["AvailabilityZone"], row["InstanceType"]), time_s, float(row["SpotPrice"]))
            self._seen_s[region] = max(time_s, self._seen_s.get(region, start_s))
        for key, series in self._series.items():
            # The last one before the window is still in force at its start.
            del series[: max(0, bisect_right(series, (now_s - KEPT_S, float("inf"))) - 1)]
            # EC2 names a price again each day, also where it is the same.
            before = [None, *(price for _, price in series)]
            self._steps[key] = tuple(
                step for step, earlier in zip(series, before, strict=False) if step[1] != earlier
            )

    def _keep(self, key: Key, time_s: float, price: float) -> None:
        series = self._series.setdefault(key, [])
        at = bisect_right(series, (time_s, float("inf")))
        if at and series[at - 1][0] == time_s:
            series[at - 1] = (time_s, price)
        else:
            series.insert(at, (time_s, price))
