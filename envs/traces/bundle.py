"""The recorded markets that ship with the package, and the distributions fitted to recordings."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spotweave.envs.simulation.availability import (
    LognormalComponent,
    LognormalMixture,
    OnOff,
    SpellParameters,
)
from spotweave.envs.simulation.series import OfferTrace, StepSeries
from spotweave.envs.simulation.streams import Split
from spotweave.envs.traces.storage import TraceError

DATA_DIR = Path(__file__).parent / "data"
FORMAT_VERSION = 1
DAY_S = 86_400

#: Half-open day ranges on the bundle's clock. The last half day of the record is in none of them.
SPLIT_DAYS: dict[Split, tuple[int, int]] = {"train": (0, 30), "validation": (30, 38), "test": (38, 45)}

#: Region name of capacity that belongs to the user, for `TraceBundle.egress_usd_per_gb`.
OWNED_REGION = "owned"

_GCP_REGION = re.compile(r"(us|northamerica|southamerica|europe|asia|australia|me|africa)-[a-z]+[0-9]+")
_AWS_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")

_SeriesKey = tuple[str, str, str, str, str, str]


@dataclass(frozen=True)
class TraceBundle:
    """Recorded prices and availability on one clock.

    Times are seconds from `clock_start_utc`, when the AWS recording starts. GCP spot prices were recorded
    only from 2023-05-08 on, so every GCP series (spot and on-demand alike) is moved `gcp_shift_days` back:
    the GCP prices of 2023-09-13 stand at time 0. Prices before time 0 are kept, at negative times.
    """

    clock_start_utc: str  # ISO 8601
    record_end_s: int  # where recorded availability ends
    tick_s: int  # seconds between two probes of availability (nominal; the true times are kept)
    gcp_shift_days: int  # see above
    meta: dict[str, Any]  # bundle.json as read, with sources and licences
    _series: dict[_SeriesKey, StepSeries]
    _egress: dict[tuple[str, str], float]
    _list_prices: dict[str, Any]

    def spot_zones(self, provider: str = "aws", instance_type: str = "p3.2xlarge") -> tuple[str, ...]:
        """Zones with recorded spot availability of an instance type, in alphabetical order."""
        return tuple(
            sorted(
                zone
                for owner, _, zone, kind, market, quantity in self._series
                if (owner, kind, market, quantity) == (provider, instance_type, "spot", "available")
            )
        )

    def offers(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """(provider, region, zone, instance type, market) of every price series; zone "" is the region."""
        return tuple(sorted(key[:5] for key in self._series if key[5] == "price_usd_hour"))

    def offer_trace(
        self,
        provider: str,
        region: str,
        zone: str,
        instance_type: str,
        market: str,
        availability: StepSeries | None = None,
    ) -> OfferTrace:
        """Price and availability of one offer.

        Args:
            provider: "aws" or "gcp".
            region: e.g. "us-east-1", "us-central1".
            zone: e.g. "us-east-1a"; it matters for AWS spot only, the other price lists are per region.
            instance_type: e.g. "p3.2xlarge".
            market: "spot" or "on_demand".
            availability: synthetic availability in place of the recorded one. GCP spot needs it, since nobody
                recorded it (see `envs.simulation.availability.generate_availability`).

        Returns:
            The trace; on-demand without `availability` is always available.

        Raises:
            TraceError: for an offer that the bundle lacks, or without availability where none is known.
        """
        price = self.price(provider, region, zone, instance_type, market)
        if availability is not None:
            return OfferTrace(price, availability, synthetic_availability=True)
        if market == "on_demand":
            return OfferTrace(price, StepSeries(np.zeros(1, np.int64), np.ones(1)))
        recorded = self._series.get((provider, region, zone, instance_type, market, "available"))
        if recorded is None:
            raise TraceError(
                f"availability of {provider} spot {instance_type} in {region} was never recorded: "
                "pass availability=, e.g. from generate_availability"
            )
        return OfferTrace(price, recorded)

    def price(self, provider: str, region: str, zone: str, instance_type: str, market: str) -> StepSeries:
        """Price in USD per hour of one offer; the arguments are those of `offer_trace`.

        Raises:
            TraceError: for an offer that the bundle lacks.
        """
        if market not in ("spot", "on_demand"):
            raise TraceError(f"market {market!r}: expected 'spot' or 'on_demand'")
        zonal = (provider, market) == ("aws", "spot")
        home = self._price_region(provider, region) if market == "on_demand" else region
        key = (provider, home, zone if zonal else "", instance_type, market)
        price = self._series.get((*key, "price_usd_hour"))
        if price is None:
            raise TraceError(
                f"the bundle has no {market} price of {provider} {instance_type} in "
                f"{zone if zonal else region}: `spotweave traces show` lists what it has"
            )
        return price

    def on_demand_usd_hour(self, provider: str, region: str, instance_type: str) -> float:
        """The on-demand list price at time 0 of the bundle's clock.

        Raises:
            TraceError: for a region or type that the bundle does not hold.
        """
        return self.price(provider, region, "", instance_type, "on_demand").at(0)

    def egress_usd_per_gb(self, from_region: str, to_region: str) -> float:
        """Price of moving one GB between two regions of AWS, GCP or `OWNED_REGION`.

        Within a region it is 0. AWS to AWS comes from the recorded table. Leaving a cloud for another, or for
        owned capacity, costs the first tier of its internet list price; entering one is free, so data that
        leave owned capacity cost nothing. GCP to GCP is the list price by continent (docs/traces.md).

        Raises:
            TraceError: for a region of neither cloud, or a pair that the AWS table lacks.
        """
        source, target = self._cloud_of(from_region), self._cloud_of(to_region)
        if from_region == to_region or source == OWNED_REGION:
            return 0.0
        if source != target:
            return float(self._list_prices[source]["internet_egress_usd_per_gb"])
        if source == "aws":
            price = self._egress.get((from_region, to_region))
            if price is None:
                raise TraceError(f"the bundle has no transfer price from {from_region} to {to_region}")
            return price
        prices = self._list_prices["gcp"]["inter_region_usd_per_gb"]
        continents = {_continent(from_region), _continent(to_region)}
        if len(continents) == 1:
            return float(prices["same_continent"])
        return float(prices["us_europe" if continents == {"america", "europe"} else "other"])

    def _price_region(self, provider: str, region: str) -> str:
        same = self._list_prices["aws"]["on_demand_same_as_us_east_1"]
        return "us-east-1" if provider == "aws" and region in same else region

    @staticmethod
    def _cloud_of(region: str) -> str:
        if region == OWNED_REGION:
            return OWNED_REGION
        if _GCP_REGION.fullmatch(region):
            return "gcp"
        if _AWS_REGION.fullmatch(region):
            return "aws"
        raise TraceError(
            f"unknown region {region!r}: expected an AWS region (us-east-1), a GCP region (us-central1) "
            f"or {OWNED_REGION!r}"
        )


def _continent(gcp_region: str) -> str:
    prefix = gcp_region.split("-")[0]
    return "america" if prefix in ("us", "northamerica") else prefix


@cache
def load_bundle(directory: Path = DATA_DIR) -> TraceBundle:
    """Read a bundle once per process. Raises TraceError for a folder that holds no bundle of this version."""
    try:
        meta = json.loads((directory / "bundle.json").read_text())
        list_prices = json.loads((directory / "list_prices.json").read_text())
        tables = {name: pq.read_table(directory / f"{name}.parquet") for name in ("series", "egress")}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TraceError(f"{directory} is no readable bundle ({error}): rebuild or reinstall it") from error
    if meta.get("format_version") != FORMAT_VERSION:
        raise TraceError(
            f"{directory} has bundle format {meta.get('format_version')!r}, this release reads "
            f"{FORMAT_VERSION}: rebuild it with `spotweave traces build`"
        )
    egress = tables["egress"].to_pydict()
    return TraceBundle(
        clock_start_utc=meta["clock_start_utc"],
        record_end_s=meta["record_end_s"],
        tick_s=meta["tick_s"],
        gcp_shift_days=meta["gcp_shift_days"],
        meta=meta,
        _series=_split(tables["series"]),
        _egress={
            (source, target): price
            for source, target, price in zip(
                egress["from_region"], egress["to_region"], egress["price_usd_per_gb"], strict=True
            )
        },
        _list_prices=list_prices,
    )


def _split(table: Any) -> dict[_SeriesKey, StepSeries]:
    """One StepSeries per key; rows of a key stand together and in time order."""
    names = ("provider", "region", "zone", "instance_type", "market", "quantity")
    keys = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    times_s = table.column("time_s").to_numpy()
    values = table.column("value").to_numpy()
    starts = [0] + [row for row in range(1, len(keys)) if keys[row] != keys[row - 1]]
    ends = [*starts[1:], len(keys)]
    return {
        keys[start]: StepSeries(times_s[start:end].astype(np.int64), values[start:end].astype(np.float64))
        for start, end in zip(starts, ends, strict=True)
    }


FITTED_PATH = Path(__file__).parent / "data" / "fitted.json"


@dataclass(frozen=True)
class FittedWorkload:
    """Jobs and launches, as `spotweave traces fit` found them."""

    gang_sizes: tuple[int, ...]  # GPUs that a job needs at once
    gang_probabilities: tuple[float, ...]  # of each size; they sum to 1
    duration_mixture: tuple[LognormalComponent, ...]  # job duration in seconds
    # (24,) share of a day's streaming load that falls in each hour; they sum to 1
    hourly_weights: tuple[float, ...]
    # probability that a launch fails although the latest probe, one tick ago, said that capacity was there.
    # This is what a world applies to a launch while availability is 1.
    launch_failure: float


@dataclass(frozen=True)
class Fitted:
    """Everything in fitted.json."""

    workload: FittedWorkload  # jobs and launches
    # spell parameters by name: "pooled" over the nine V100 zones, and one set per AWS region, e.g. "us-
    # west-2" for a market with plenty and "us-east-1" for a scarce one. Train days only.
    availability: dict[str, SpellParameters]


@cache
def load_fitted(path: Path = FITTED_PATH) -> Fitted:
    """Read the fitted parameters once per process.

    Raises:
        TraceError: for a file that cannot be read or lacks an entry.
    """
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        jobs, batches, launches = (raw[name] for name in ("jobs", "batches", "launches"))
        workload = FittedWorkload(
            gang_sizes=tuple(jobs["gang_sizes"]),
            gang_probabilities=tuple(jobs["gang_probabilities"]),
            duration_mixture=_components(jobs["duration_mixture"]),
            hourly_weights=tuple(batches["hourly_weights"]),
            launch_failure=launches["launch_failure"],
        )
        availability = {
            name: SpellParameters(*(_on_off(found[part]) for part in ("own", "regional", "common")))
            for name, found in raw["availability"].items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(
            f"{path} holds no fitted parameters ({error}): refit with `spotweave traces fit`"
        ) from error
    return Fitted(workload, availability)


def _components(raw: list[dict[str, float]]) -> tuple[LognormalComponent, ...]:
    return tuple(LognormalComponent(c["weight"], c["log_mean"], c["log_sigma"]) for c in raw)


def _on_off(raw: dict[str, list[dict[str, float]]]) -> OnOff:
    return OnOff(*(LognormalMixture(_components(raw[side])) for side in ("up", "down")))
