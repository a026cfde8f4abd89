"""What instances and moving data cost: exact functions of when they ran, of prices and of regions.

Money is kept in whole *charges*, `CHARGES_PER_USD` to the dollar: prices are whole micro-USD per hour,
and a charge is (micro-USD per hour) x seconds, as in the simulation core. Sums of integers do not drift,
and only the price of a disk is divided before it is shown. 64 bits hold 2.5 billion dollars.

The rule, for seconds k = 0, 1, 2, ... from the launch: second k is billed once it has begun, at the price
in force when it began, and at least `minimum_s` of them are billed. An instance that its provider ends
earlier than `free_first_s` after the launch costs nothing. While it is stopped it costs nothing; each
start is billed again, with its own minimum.

Its disk costs from the launch to the end, through stops and whoever ended it, at least `minimum_s`; only
a launch that never ran had none. It has a price per month, and a second costs its share of the calendar
month (UTC) that it lies in, as Amazon EBS counts: a GB-month is 744 hours of a GB in a month of 31 days
(https://repost.aws/knowledge-center/ebs-volume-charges, https://aws.amazon.com/ebs/pricing/). What a disk
costs on a day is rounded to a charge, a 3.6 thousand millionth of a dollar.
"""

from __future__ import annotations

import calendar
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from typing import NamedTuple

CHARGES_PER_USD = 3_600_000_000
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


def micro_usd_hour(price_usd_hour: float) -> int:
    """A price in whole micro-USD per hour (clouds print at most six decimals).

    Raises ValueError if the price is negative or not a number.
    """
    return _micro_usd(price_usd_hour, "hour")


def micro_usd_month(price_usd_month: float) -> int:
    """The same of a price per month. Raises ValueError."""
    return _micro_usd(price_usd_month, "month")


def _micro_usd(price: float, per: str) -> int:
    if not 0 <= price < 1e9:
        raise ValueError(f"a price is {price} USD per {per}: expected 0 or more")
    return round(price * 1e6)


def usd(charges: int) -> Decimal:
    """Charges in dollars, rounded to the micro-USD: for showing, and for limits; never sum its results."""
    return (Decimal(charges) / CHARGES_PER_USD).quantize(Decimal("0.000001"), ROUND_HALF_EVEN)


class Stop(NamedTuple):
    """A time during which an instance was stopped."""

    stopped_s: float  # epoch seconds
    started_s: float | None  # when it was started again; None: it was not


class PriceSegment(NamedTuple):
    """A price and since when it is in force."""

    start_s: float
    price_micro_usd_hour: int


@dataclass(frozen=True)
class Usage:
    """What a bill is computed from."""

    launched_s: float
    ended_s: float | None
    by_provider: bool  # whether the provider ended it
    segments: tuple[PriceSegment, ...]  # prices by rising start; the first also holds before its start
    on_demand_micro_usd_hour: int  # price of the same type on demand
    minimum_s: float  # this many seconds are billed at least
    free_first_s: float = 0.0  # free if the provider ends it earlier than this
    disk_micro_usd_month: int = 0  # of its disk
    stops: tuple[Stop, ...] = ()

    def __post_init__(self) -> None:
        starts = [segment.start_s for segment in self.segments]
        if not starts or any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"price segments start at {starts}: expected at least one, by rising start")
        turns = [turn for stop in self.stops for turn in stop if turn is not None]
        if turns != sorted(turns) or any(stop.started_s is None for stop in self.stops[:-1]):
            raise ValueError(f"stops are {self.stops}: expected them by time, each but the last with its end")


@dataclass(frozen=True)
class Bill:
    """An amount that can be summed."""

    seconds: int = 0  # that instances ran (begun seconds, without what the minimum adds)
    cost: int = 0  # charges, for everything
    # charges for the same instances over the same time on demand, with the same minimum; disks and moves of
    # data cost the same there
    on_demand: int = 0
    disk: int = 0  # the part of the cost that is for disks
    egress: int = 0  # the part that is for data that were moved

    def __add__(self, other: Bill) -> Bill:
        return Bill(
            self.seconds + other.seconds,
            self.cost + other.cost,
            self.on_demand + other.on_demand,
            self.disk + other.disk,
            self.egress + other.egress,
        )

    def __sub__(self, other: Bill) -> Bill:
        return Bill(
            self.seconds - other.seconds,
            self.cost - other.cost,
            self.on_demand - other.on_demand,
            self.disk - other.disk,
            self.egress - other.egress,
        )

    @property
    def instance(self) -> int:
        """The part of the cost that is for instances."""
        return self.cost - self.disk - self.egress

    @property
    def usd(self) -> Decimal:
        """The cost in dollars, to the micro-USD."""
        return usd(self.cost)

    @property
    def on_demand_usd(self) -> Decimal:
        """The on-demand equivalent in dollars, to the micro-USD."""
        return usd(self.on_demand)


def bill(usage: Usage, now_s: float) -> Bill:
    """What an instance has cost: finally if it has ended, else as if we ended it now.

    `now_s` is later than the launch, or the instance has cost its minimum.
    """
    return sum(bill_by_day(usage, now_s).values(), Bill())


def bill_by_day(usage: Usage, now_s: float) -> dict[date, Bill]:
    """The same per UTC day in which the seconds began; the parts add up to the whole exactly."""
    launched = _microseconds(usage.launched_s)
    ended = max(launched, _microseconds(now_s if usage.ended_s is None else usage.ended_s))
    minimum = -(-_microseconds(usage.minimum_s) // _SECOND_US)
    free = (
        usage.ended_s is not None
        and usage.by_provider
        and ended - launched < _microseconds(usage.free_first_s)
    )
    days: dict[date, Bill] = {}
    for start, end in _runs(launched, usage.stops, ended):
        ran = -((start - end) // _SECOND_US)
        for day, first, last, price in _stretches(start, ran, max(ran, minimum), usage.segments):
            seconds = last - first
            days[day] = days.get(day, Bill()) + Bill(
                seconds=seconds if last <= ran else 0,
                cost=0 if free else seconds * price,
                on_demand=seconds * usage.on_demand_micro_usd_hour,
            )
    never_ran = free and ended == launched
    if usage.disk_micro_usd_month and not never_ran:
        existed = max(-((launched - ended) // _SECOND_US), minimum)
        for day, first, last, _ in _stretches(launched, existed, existed, usage.segments[:1]):
            charges = disk_charges(usage.disk_micro_usd_month, last - first, day)
            days[day] = days.get(day, Bill()) + Bill(cost=charges, on_demand=charges, disk=charges)
    return days


def disk_charges(micro_usd_month: int, seconds: int, day: date) -> int:
    """Cost of a disk for some seconds of a day, in micro-USD."""
    per_hour = 24 * calendar.monthrange(day.year, day.month)[1]
    return (2 * micro_usd_month * seconds + per_hour) // (2 * per_hour)


def _runs(launched: int, stops: Sequence[Stop], ended: int) -> Iterator[tuple[int, int]]:
    start = launched
    for stop in stops:
        yield start, min(max(start, _microseconds(stop.stopped_s)), ended)
        if stop.started_s is None or _microseconds(stop.started_s) >= ended:
            return
        start = _microseconds(stop.started_s)
    yield start, ended


def _microseconds(seconds: float) -> int:
    # Epoch seconds as floats resolve a quarter of a microsecond: nothing is lost, and comparisons are exact.
    return round(seconds * 1e6)


def _stretches(
    launched: int, ran: int, billed: int, segments: Sequence[PriceSegment]
) -> Iterator[tuple[date, int, int, int]]:
    """(day, first second, end, price) of stretches with one price, either run or added by the minimum."""

    def seconds_before(moment: int) -> int:
        return min(max(-((launched - moment) // _SECOND_US), 0), billed)

    starts = [seconds_before(_microseconds(segment.start_s)) for segment in segments]
    starts[0] = 0
    next_day = (launched // _DAY_US + 1) * _DAY_US
    last = launched + billed * _SECOND_US
    midnights = [seconds_before(moment) for moment in range(next_day, last, _DAY_US)]
    cuts = sorted({0, ran, billed, *starts, *midnights})
    current = 0
    for first, end in pairwise(cuts):
        while current + 1 < len(starts) and starts[current + 1] <= first:
            current += 1
        day = datetime.fromtimestamp((launched + first * _SECOND_US) // _SECOND_US, UTC).date()
        yield day, first, end, segments[current].price_micro_usd_hour


# Time and price of moving data between regions.


class Move(NamedTuple):
    """Time and price of moving all that a task needs into a region."""

    seconds: float
    usd: float


@dataclass(frozen=True)
class Transfers:
    """Prices and times of moving a GB; what is not in the tables is free and takes no time."""

    regions: tuple[str, ...] = ()  # possible destinations
    usd_gb: Mapping[tuple[str, str], float] = field(default_factory=dict)  # by (from region, to region)
    seconds_gb: Mapping[tuple[str, str], float] = field(default_factory=dict)  # by (from region, to region)
    # of a GB that leaves a region for another cloud, by region
    internet_usd_gb: Mapping[str, float] = field(default_factory=dict)

    def joined(self, *others: Transfers) -> Transfers:
        """Join several clouds' transfers: between clouds, data go over the Internet."""
        listed = (self, *others)
        between = {
            (start, end): usd
            for one in listed
            for start, usd in one.internet_usd_gb.items()
            for other in listed
            if other is not one
            for end in other.regions
        }
        return Transfers(
            regions=tuple(region for one in listed for region in one.regions),
            usd_gb=between | {move: usd for one in listed for move, usd in one.usd_gb.items()},
            seconds_gb={move: seconds for one in listed for move, seconds in one.seconds_gb.items()},
        )

    def moves(self, loads: Sequence[tuple[str, float]]) -> dict[str, Move]:
        """By region: what moving loads, (region, GB) each, there takes, in whole seconds and charges."""
        return {region: self._move(loads, region) for region in self.regions} if loads else {}

    def _move(self, loads: Sequence[tuple[str, float]], region: str) -> Move:
        seconds = charges = 0.0
        for start, size_gb in loads:
            seconds += size_gb * self.seconds_gb.get((start, region), 0.0)
            charges += size_gb * (self.usd_gb.get((start, region), 0.0) * CHARGES_PER_USD)
        return Move(math.ceil(seconds), int(charges + 0.5) / CHARGES_PER_USD)
