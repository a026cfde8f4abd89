"""Prices and capacity: one pool for each instance type in each zone, driven by its recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from spotweave.deploy.emulator.config import EmulatorConfig, PoolConfig
from spotweave.deploy.providers.local.traces import RecordedMarket, constant, load_recording
from spotweave.deploy.yamlfile import ConfigError
from spotweave.envs.traces.storage import TraceError


@dataclass
class Pool:
    """The capacity of one instance type in one zone; the control interface changes it."""

    region: str
    zone: str
    instance_type: str
    vcpus: int
    on_demand_usd_hour: float
    recording: RecordedMarket
    spot_capacity: int
    on_demand_capacity: int


class Market:
    """All pools, in the time of the emulator's clock. Raises ConfigError if a recording cannot be used."""

    def __init__(self, config: EmulatorConfig, origin_s: float) -> None:
        self._origin_s = origin_s
        self._start_s, self._factor = config.trace_start_s, config.time_factor
        self.pools: dict[tuple[str, str], Pool] = {}
        for given in config.pools:
            self.pools[given.zone, given.instance_type] = Pool(
                given.region,
                given.zone,
                given.instance_type,
                given.vcpus,
                given.on_demand_usd_hour,
                _recording(config, given),
                given.spot_capacity,
                given.on_demand_capacity,
            )

    def find(self, zone: str, instance_type: str) -> Pool | None:
        """The pool, if there is one."""
        return self.pools.get((zone, instance_type))

    def of_region(self, region: str) -> list[Pool]:
        """Pools of a region, in the order of the configuration."""
        return [pool for pool in self.pools.values() if pool.region == region]

    def has_spot(self, pool: Pool, now_s: float) -> bool:
        """Whether the recording has capacity."""
        return pool.spot_capacity > 0 and pool.recording.available(self._position_s(now_s))

    def price(self, pool: Pool, now_s: float) -> float:
        """The spot price in USD per hour."""
        return pool.recording.price_usd_hour(self._position_s(now_s))

    def ends_s(self, pool: Pool, now_s: float, max_usd_hour: float) -> float | None:
        """When an instance that runs now is taken away; None: never."""
        at = self._position_s(now_s)
        end = pool.recording.ends_s(at, max_usd_hour)
        return None if end is None else now_s + (end - at) / self._factor

    def up_ratio(self, pool: Pool, now_s: float) -> float:
        """Share of the latest recorded day with capacity."""
        return pool.recording.history(self._position_s(now_s)).up_ratio

    def prices(self, pool: Pool, since_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        """(epoch seconds, USD per hour) of each change of the price, after the one in force at the start."""
        recording = pool.recording
        row, end = recording.row(max(0.0, self._position_s(since_s))), self._position_s(until_s)
        latest: float | None = None
        while (at := recording.begins_s(row)) <= end:
            price = recording.prices[row % len(recording.prices)]
            if price != latest:
                latest = price
                yield self._time_s(at), price
            row += 1

    def _position_s(self, now_s: float) -> float:
        return self._start_s + (now_s - self._origin_s) * self._factor

    def _time_s(self, position_s: float) -> float:
        return self._origin_s + (position_s - self._start_s) / self._factor


def _recording(config: EmulatorConfig, given: PoolConfig) -> RecordedMarket:
    if given.trace is None:
        assert given.spot_usd_hour is not None
        return constant(given.spot_usd_hour)
    try:
        found = load_recording(config.folder / given.trace, given.spot_usd_hour)
    except TraceError as error:
        raise ConfigError(f"{given.zone}/{given.instance_type}: {error}") from error
    if given.capacity_only and given.spot_usd_hour is not None:
        return replace(found, prices=(given.spot_usd_hour,) * len(found.prices))
    return found
