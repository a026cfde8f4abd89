"""Joins recorded traces, price lists and fitted laws into the data of a market world."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import lru_cache

import numpy as np

from spotweave.envs.simulation.availability import LognormalMixture
from spotweave.envs.simulation.market.config import (
    PROVIDERS,
    Market,
    MarketConfig,
    MarketWorldConfig,
    OfferConfig,
    Provider,
)
from spotweave.envs.simulation.market.source import MarketData
from spotweave.envs.simulation.market.workload import JobLaw, JobLog
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.streams import Split
from spotweave.envs.simulation.world import constant, require
from spotweave.envs.traces.bundle import SPLIT_DAYS, load_bundle, load_fitted
from spotweave.envs.traces.format import MarketTrace, load_jobs, load_traces
from spotweave.envs.traces.storage import TraceError

log = logging.getLogger(__name__)

DAY_S = 86_400
OWNED_REGION = "us-east-1"
"""The owned cluster stands next to this region: its data move like that region's."""

# Relative speeds on the scale of Liu 2022 (a V100 is 70), by generation of the GPU.
HETERO_FACTORS = {"p3.2xlarge": 70, "a2-highgpu-1g": 100, "g2-standard-8": 55}
_DEFAULT_HETERO = 70
_LAUNCH_S = {"aws": 90, "gcp": 60, "azure": 90}
_NOTICE_S = {"aws": 120, "gcp": 30, "azure": 30}
_FREE_FIRST_S = {"aws": 3600, "gcp": 0, "azure": 0}

# (region, instance type, market) of GCP's regional pools.
_GCP_OFFERS: tuple[tuple[str, str, Market], ...] = (
    ("us-central1", "a2-highgpu-1g", "spot"),
    ("us-west1", "a2-highgpu-1g", "spot"),
    ("us-east1", "a2-highgpu-1g", "spot"),
    ("us-central1", "a2-highgpu-1g", "on_demand"),
    ("us-central1", "g2-standard-8", "spot"),
    ("us-east4", "g2-standard-8", "spot"),
    ("us-central1", "g2-standard-8", "on_demand"),
)
_AWS_TYPE = "p3.2xlarge"
FREE, ALWAYS = constant(0.0), constant(1.0)


def owned_offers(
    executors: int, region: str = OWNED_REGION, hetero: int = HETERO_FACTORS[_AWS_TYPE], elastic: int = 0
) -> list[OfferConfig]:
    """The owned cluster of a region, if it has executors."""
    owned = OfferConfig(
        "owned", region, "", "", "owned", hetero, executors or 1, 0, launch_failure=0.0, elastic=elastic
    )
    return [owned] if executors else []


def cloud_offer(
    market: MarketConfig, provider: Provider, region: str, zone: str, instance_type: str, kind: Market
) -> OfferConfig:
    """An offer of a cloud with that cloud's documented habits (notice, free first hour, launch time)."""
    spot = kind == "spot"
    return OfferConfig(
        provider=provider,
        region=region,
        zone=zone,
        instance_type=instance_type,
        market=kind,
        hetero_factor=HETERO_FACTORS.get(instance_type, _DEFAULT_HETERO),
        quota=market.spot_quota if spot else market.on_demand_quota,
        launch_s=_LAUNCH_S[provider],
        # Fitted where spot capacity was probed; on-demand launches are not known to fail.
        launch_failure=load_fitted().workload.launch_failure if spot else 0.0,
        notice_s=_NOTICE_S[provider] if spot else 0,
        notice_missed=market.notice_missed if spot else 0.0,
        interruption="hibernate" if spot and market.hibernate and provider == "aws" else "terminate",
        free_first_s=_FREE_FIRST_S[provider] if spot else 0,
    )


Row = tuple[OfferConfig, StepSeries, StepSeries | None, StepSeries]
"""An offer, its price, its availability (None: drawn in each episode) and the on-demand price next to it."""


def recorded_offers(market: MarketConfig) -> list[OfferConfig]:
    """The recorded offers of the chosen clouds, spot before on demand."""
    offers = []
    if "aws" in market.providers:
        zones = load_bundle().spot_zones("aws", _AWS_TYPE)
        offers += [cloud_offer(market, "aws", zone[:-1], zone, _AWS_TYPE, "spot") for zone in zones]
        regions = list(dict.fromkeys(zone[:-1] for zone in zones))
        offers += [cloud_offer(market, "aws", region, "", _AWS_TYPE, "on_demand") for region in regions]
    if "gcp" in market.providers:
        offers += [
            cloud_offer(market, "gcp", region, "", instance_type, kind)
            for region, instance_type, kind in _GCP_OFFERS
        ]
    return offers


def _joined(market: MarketConfig, rows: list[Row], splits: dict[Split, tuple[int, int]]) -> MarketData:
    """Owned clusters and these offers, without those that `market.offers`, if it names any, leaves out."""
    names = [offer.name for offer, *_ in rows]
    for name in market.offers:
        require(name in names, f"market.offers has {name!r}", f"names among {', '.join(names)}")
    owned = owned_offers(market.owned_executors, elastic=market.owned_elastic)
    for more in market.more_owned if market.owned_executors > 0 else []:
        owned += owned_offers(more.executors, more.region, more.hetero_factor, more.elastic)
    kept: list[Row] = [(offer, FREE, ALWAYS, FREE) for offer in owned]
    kept += [row for row in rows if not market.offers or row[0].name in market.offers]
    offers = tuple(offer for offer, *_ in kept)
    regions = tuple(dict.fromkeys(offer.region for offer in offers))
    egress = [[load_bundle().egress_usd_per_gb(here, there) for there in regions] for here in regions]
    return MarketData(
        offers=offers,
        price_usd_hour=tuple(price for _, price, _, _ in kept),
        availability=tuple(availability for _, _, availability, _ in kept),
        on_demand_usd_hour=tuple(on_demand for *_, on_demand in kept),
        regions=regions,
        egress_usd_gb=np.array(egress, np.float64).reshape(len(regions), len(regions)),
        splits=splits,
        law=job_law(),
        spells=load_fitted().availability["pooled"],
    )


def job_law() -> JobLaw:
    """Gangs, durations and hours of the day as fitted to recordings."""
    fitted = load_fitted().workload
    return JobLaw(
        gang_sizes=fitted.gang_sizes,
        gang_weights=fitted.gang_probabilities,
        durations=LognormalMixture(fitted.duration_mixture),
        hourly_weights=fitted.hourly_weights,
    )


def market_data(market: MarketConfig) -> MarketData:
    """The offers and their recordings: those of `market.traces`, else the bundle's.

    Raises:
        WorldError: if `market.offers` names an offer that there is not.
        TraceError: for traces that cannot be used.
    """
    return user_market(market) if market.traces else recorded_market(market)


def recorded_market(market: MarketConfig) -> MarketData:
    """The market that ships with the package.

    Raises:
        WorldError: if `market.offers` names an offer that there is not.
    """
    bundle = load_bundle()
    rows: list[Row] = []
    for offer in recorded_offers(market):
        place = (offer.provider, offer.region, offer.zone, offer.instance_type)
        recorded = offer.provider == "aws" or offer.market == "on_demand"
        # The bundle wants to know what stands in for availability that nobody recorded; here every episode
        # draws its own.
        trace = bundle.offer_trace(*place, offer.market, availability=None if recorded else ALWAYS)
        listed = bundle.price(offer.provider, offer.region, "", offer.instance_type, "on_demand")
        rows.append((offer, trace.price_usd_hour, trace.availability if recorded else None, listed))
    return _joined(market, rows, {name: (a * DAY_S, b * DAY_S) for name, (a, b) in SPLIT_DAYS.items()})


def user_market(market: MarketConfig) -> MarketData:
    """The owned cluster and one offer per trace of a user (docs/traces.md).

    Spot traces without availability draw a synthetic one in every episode. The recorded time is cut into
    train, validation and test in the proportions of the bundle. Transfer prices, and on-demand prices that
    no trace gives, come from the bundle.

    Raises:
        TraceError: for traces that cannot be read or used, in one line.
        WorldError: if `market.offers` names an offer that there is not.
    """
    traces = load_traces(market.traces)
    rows: list[Row] = []
    for trace in traces:
        meta = trace.meta
        if meta.provider not in PROVIDERS[1:]:
            raise TraceError(
                f"a trace has provider {meta.provider!r}: expected one of {', '.join(PROVIDERS[1:])}"
            )
        place = (meta.provider, meta.region, meta.zone, meta.instance_type)
        found = trace.offer_trace(availability=ALWAYS)
        synthetic = meta.market == "spot" and trace.available is None
        availability = None if synthetic else found.availability
        beside = _on_demand_price(trace, traces)
        rows.append((cloud_offer(market, *place, meta.market), found.price_usd_hour, availability, beside))
    return _joined(market, rows, _splits(traces))


def _on_demand_price(trace: MarketTrace, traces: tuple[MarketTrace, ...]) -> StepSeries:
    """The on-demand price next to a trace: the user's own if given, else the price list's."""
    meta = trace.meta
    for other in traces:
        listed = other.meta.market == "on_demand" and other.price_usd_hour is not None
        if listed and other.meta.product == meta.product:
            return other.offer_trace(availability=ALWAYS).price_usd_hour
    try:
        return load_bundle().price(meta.provider, meta.region, "", meta.instance_type, "on_demand")
    except TraceError as error:
        raise TraceError(
            f"no on-demand price of {meta.provider} {meta.instance_type} in {meta.region}: "
            "add an on_demand trace of it"
        ) from error


@lru_cache(maxsize=8)
def job_log(folder: str, largest: int) -> JobLog:
    """The jobs of a job trace that fit on some offer, their time cut into splits in the bundle's proportions.

    Says once, as a warning, how many fit nowhere.

    Args:
        folder: of the job trace.
        largest: executors of the largest offer.

    Raises:
        TraceError: for a trace that cannot be read, or of which no job fits.
    """
    trace = load_jobs(folder)
    fits = trace.executors <= largest
    if not fits.any():
        raise TraceError(
            f"{folder}: every job needs more than {largest} executors, the quota of the largest offer: raise "
            "env.market.on_demand_quota"
        )
    if not fits.all():
        log.warning(
            "%s: %d of %d jobs need more than %d executors, the quota of the largest offer, and are left out",
            *(folder, len(fits) - int(fits.sum()), len(fits), largest),
        )
    arrival_s = trace.arrival_s[fits]
    span_s, days = int(arrival_s[-1] - arrival_s[0]) + 1, SPLIT_DAYS["test"][1]
    rows = {}
    for name, bounds in SPLIT_DAYS.items():
        first, end = (np.searchsorted(arrival_s, arrival_s[0] + span_s * day // days) for day in bounds)
        rows[name] = int(first), int(end)
    return JobLog(arrival_s, trace.duration_s[fits], trace.executors[fits], rows)


def _splits(traces: tuple[MarketTrace, ...]) -> dict[Split, tuple[int, int]]:
    """The time that every trace covers, cut in the bundle's proportions."""
    # When an on-demand price was noted says nothing about when the market was watched.
    spot = [trace for trace in traces if trace.meta.market == "spot"] or traces
    probed = [trace for trace in spot if trace.available is not None] or spot
    start = max(int(trace.times_s[0]) for trace in probed)
    # A probe says until when somebody looked; a row that is a change does not.
    ends = [int(trace.times_s[-1]) for trace in probed if trace.meta.tick_s]
    end = min(ends) if ends else max(int(trace.times_s[-1]) for trace in traces)
    days = SPLIT_DAYS["test"][1]
    if end - start < days:
        raise TraceError(
            f"the traces cover {max(0, end - start)} s together: too short for train, validation and test"
        )
    return {
        name: (start + (end - start) * a // days, start + (end - start) * b // days)
        for name, (a, b) in SPLIT_DAYS.items()
    }


__all__ = ["MarketWorldConfig", "build_market"]


def build_market(
    config: MarketWorldConfig | None = None, n_lanes: int = 1, record: bool = False
) -> MarketWorld:
    """The market world on recorded traces: those of `config.market.traces`, else the bundle's.

    The jobs are drawn, or those of `config.workload.trace`.

    Args:
        config: what to simulate; None: the defaults.
        n_lanes: copies.
        record: remember who ran where, for `timeline`.

    Raises:
        WorldError: for a configuration that makes no sense.
        TraceError: for traces that cannot be used.
    """
    config = config if config is not None else MarketWorldConfig()
    config.validate()
    data = market_data(config.market)
    if config.workload.trace:
        largest = max(offer.quota for offer in data.offers)
        log = job_log(config.workload.trace, largest)
        log.require(config.workload.jobs)
        data = replace(data, log=log)
    return MarketWorld(config, data, n_lanes, record)
