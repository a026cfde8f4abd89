"""Sources of episodes: a window of recorded time, a workload, and keys for the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation.availability import SpellParameters, generate_availability
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.config import PROVIDERS, MarketWorldConfig, OfferConfig
from spotweave.envs.simulation.market.episodes import WEEK_S, EpisodeData
from spotweave.envs.simulation.market.state import CHARGES_PER_USD, Offers
from spotweave.envs.simulation.market.workload import (
    JobLaw,
    JobLog,
    bend_by_hour,
    draw_applications,
    draw_arrival_units,
    draw_groups,
    draw_jobs,
)
from spotweave.envs.simulation.series import Floats, StepSeries
from spotweave.envs.simulation.streams import Split, Streams, episode_sequence
from spotweave.envs.simulation.world import EpisodeKey, WorldError

_DECAY_STEPS = 512


@dataclass(frozen=True)
class MarketData:
    """The recorded side of a market world. Series are on one clock, in seconds."""

    offers: tuple[OfferConfig, ...]  # C offers
    price_usd_hour: tuple[StepSeries, ...]  # C price series per executor (constant 0 on owned clusters)
    availability: tuple[StepSeries | None, ...]  # C series; None where each episode draws a synthetic one
    on_demand_usd_hour: tuple[StepSeries, ...]  # C price series of the same type on demand
    regions: tuple[str, ...]  # R region names
    egress_usd_gb: Floats  # (R, R) price of a GB from row to column
    # [start, end) of each split on the clock; no episode looks outside its split
    splits: Mapping[Split, tuple[int, int]]
    law: JobLaw  # what recordings say about jobs
    spells: SpellParameters | None = None  # law of the synthetic availability; None if no offer needs it
    log: JobLog | None = None  # recorded jobs; None where they are drawn

    def validate(self) -> None:
        """Check that the parts fit together.

        Raises:
            WorldError: one line naming what does not.
        """
        n = len(self.offers)
        if n == 0:
            raise WorldError("a market world needs at least one offer, got none")
        for label in ("price_usd_hour", "availability", "on_demand_usd_hour"):
            if len(getattr(self, label)) != n:
                raise WorldError(
                    f"{label} has {len(getattr(self, label))} series for {n} offers: give one each"
                )
        names = [offer.name for offer in self.offers]
        if len(set(names)) != n:
            twice = next(name for name in names if names.count(name) > 1)
            raise WorldError(f"offer {twice} appears twice: offers need different places, types or markets")
        for offer, price in zip(self.offers, self.price_usd_hour, strict=True):
            if offer.region not in self.regions:
                raise WorldError(f"offer {offer.name} lies in {offer.region}, not one of the world's regions")
            if (price.values < 0).any():
                raise WorldError(f"offer {offer.name} has a negative price: expected USD per hour >= 0")
        shape = (len(self.regions), len(self.regions))
        if self.egress_usd_gb.shape != shape or (self.egress_usd_gb < 0).any():
            raise WorldError(
                f"egress_usd_gb needs prices >= 0 of shape {shape}, got {self.egress_usd_gb.shape}"
            )
        if any(series is None for series in self.availability) and self.spells is None:
            raise WorldError("an offer has no recorded availability: give it, or spells to draw it from")
        for split, (start, end) in self.splits.items():
            if end <= start:
                raise WorldError(f"split {split} covers no time: [{start}, {end})")


def make_offers(config: MarketWorldConfig, data: MarketData) -> Offers:
    """The offers as arrays for compiled code."""
    offers, market = data.offers, config.market
    region = {name: number for number, name in enumerate(data.regions)}
    disk = round(market.disk_gb * market.disk_usd_gb_hour * 1e6)
    fixed = np.zeros((len(offers), at.ELASTIC + 1), np.int64)
    chance = np.zeros((len(offers), at.NOTICE_MISSED + 1), np.float64)
    for c, offer in enumerate(offers):
        row = fixed[c]
        row[at.HETERO] = offer.hetero_factor
        row[at.QUOTA] = offer.quota + offer.elastic
        row[at.ELASTIC] = offer.elastic
        row[at.REGION] = region[offer.region]
        row[at.PROVIDER] = PROVIDERS.index(offer.provider)
        row[at.SPOT] = offer.market == "spot"
        row[at.QUEUES] = offer.market == "owned"
        row[at.HIBERNATES] = offer.interruption == "hibernate"
        row[at.LAUNCH_S] = 0 if offer.market == "owned" else offer.launch_s
        row[at.NOTICE_S] = offer.notice_s if offer.market == "spot" else 0
        row[at.FREE_FIRST_S] = offer.free_first_s
        row[at.DISK_CHARGE_S] = disk
        chance[c, at.LAUNCH_FAILURE] = offer.launch_failure
        chance[c, at.NOTICE_MISSED] = offer.notice_missed
    same = np.eye(len(data.regions), dtype=np.bool_)
    return Offers(
        fixed=fixed,
        chance=chance,
        egress_charge_gb=data.egress_usd_gb * float(CHARGES_PER_USD),
        seconds_per_gb=np.where(same, 1.0 / market.bandwidth_inside_gb_s, 1.0 / market.bandwidth_across_gb_s),
        decay=market.beta ** np.arange(_DECAY_STEPS, dtype=np.float64),
    )


def draw_episode(config: MarketWorldConfig, data: MarketData, key: EpisodeKey) -> EpisodeData:
    """Everything random in an episode; nothing of it depends on a policy.

    The window starts where the arrivals and `margin_s` more still fit into the split, if they do. It looks
    back at most 7 days and never out of the split; after the split's end the last values hold.

    Raises:
        WorldError: for a split that the data do not have.
    """
    if key.split not in data.splits:
        raise WorldError(f"the traces have no split {key.split!r}: they have {', '.join(data.splits)}")
    streams = Streams(episode_sequence(key.seed, key.split, key.index))
    start, end = data.splits[key.split]
    log = None if data.log is None else data.log.drawn(config.workload, key.split, streams)
    units = draw_arrival_units(config.workload, streams) if log is None else log.arrival_s
    room = end - start - int(units[-1]) - config.market.margin_s
    origin = start + int(streams.generator("window").random() * max(0, room))
    arrivals = units
    if log is None and config.workload.hourly and config.workload.arrivals.pattern != "trace":
        arrivals = bend_by_hour(units, data.law.hourly_weights, origin)
    jobs = draw_jobs(
        config.workload, config.market, data.offers, len(data.regions), data.law, arrivals, streams, log
    )
    if config.workload.federated:
        jobs = draw_applications(
            config.workload, config.market, data.offers, len(data.regions), jobs, streams
        )
    if config.workload.has_groups:
        jobs = draw_groups(config.workload, config.market, data.offers, len(data.regions), jobs, streams)
    history_s = -min(WEEK_S, origin - start)
    return EpisodeData(
        jobs=jobs,
        availability=_availability(data, streams, origin, history_s, end, config.market.max_s + 1),
        price_usd_hour=tuple(_cut(series, origin, end, origin) for series in data.price_usd_hour),
        on_demand_usd_hour=np.array([series.at(origin) for series in data.on_demand_usd_hour]),
        history_s=history_s,
        launch_key=streams.key("launches"),
        revocation_key=streams.key("revocations"),
        origin_s=origin,
    )


def _availability(
    data: MarketData, streams: Streams, origin: int, history_s: int, end: int, longest_s: int
) -> tuple[StepSeries, ...]:
    """C series that begin at `history_s`, on the episode's clock."""
    synthetic = [c for c, series in enumerate(data.availability) if series is None]
    drawn: dict[int, StepSeries] = {}
    if synthetic and data.spells is not None:
        regions = [data.offers[c].region for c in synthetic]
        # No episode lasts longer than max_s, so nobody sees what would come after it.
        span = min(end - origin, longest_s) - history_s
        series = generate_availability(streams.generator("availability"), regions, span, data.spells)
        drawn = dict(zip(synthetic, series, strict=True))
    result = []
    for c, recorded in enumerate(data.availability):
        if recorded is None:
            result.append(StepSeries(drawn[c].times_s + history_s, drawn[c].values))
        else:
            result.append(_cut(recorded, origin + history_s, end, origin))
    return tuple(result)


def _cut(series: StepSeries, start: int, end: int, origin: int) -> StepSeries:
    """The part of a series in [start, end), its times counted from `origin`."""
    first = max(0, int(np.searchsorted(series.times_s, start, side="right")) - 1)
    last = max(first + 1, int(np.searchsorted(series.times_s, end, side="left")))
    if last == first + 1:
        return _constant(float(series.values[first]), start - origin)
    times = series.times_s[first:last] - origin
    times[0] = start - origin
    return StepSeries(times, series.values[first:last])


@lru_cache(maxsize=4096)
def _constant(value: float, since_s: int) -> StepSeries:
    return StepSeries(np.array([since_s], np.int64), np.array([value]))


def fingerprint(episode: EpisodeData) -> str:
    """SHA-256 of an episode's jobs, series and keys, to seven digits: processors may differ in the last."""
    digest = hashlib.sha256()

    def add(values: NDArray[Any]) -> None:
        rounded = values.astype(np.float32) if values.dtype == np.float64 else values
        digest.update(np.ascontiguousarray(rounded).tobytes())

    for part in (episode.jobs, episode.jobs.tasks, episode.jobs.steps):
        for field in fields(part) if part is not None else ():
            if field.name not in ("tasks", "steps"):
                add(getattr(part, field.name))
    for series in (*episode.availability, *episode.price_usd_hour):
        add(series.times_s)
        add(series.values)
    add(episode.on_demand_usd_hour)
    digest.update(repr((episode.history_s, episode.launch_key, episode.revocation_key)).encode())
    return digest.hexdigest()
