"""What instances cost: an exact function of when they ran and of the prices in force meanwhile.

Money is kept in whole *charges*, `CHARGES_PER_USD` to the dollar: prices are whole micro-USD per hour, and a
charge is (micro-USD per hour) x seconds, as in the simulation core. Sums of integers do not drift, and no
division happens before an amount is shown. 64 bits hold 2.5 billion dollars.

The rule, for seconds k = 0, 1, 2, ... from the launch: second k is billed once it has begun, at the price in
force when it began, and at least `minimum_s` of them are billed. An instance that its provider ends earlier
than `free_first_s` after the launch costs nothing. A stopped time is a segment with the price 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from typing import NamedTuple

CHARGES_PER_USD = 3_600_000_000
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


def micro_usd_hour(price_usd_hour: float) -> int:
    """A price in whole micro-USD per hour (clouds print at most six decimals).

    Raises:
        ValueError: if the price is negative or not a number.
    """
    if not 0 <= price_usd_hour < 1e9:
        raise ValueError(f"a price is {price_usd_hour} USD per hour: expected 0 or more")
    return round(price_usd_hour * 1e6)


def usd(charges: int) -> Decimal:
    """Charges in dollars, rounded to the micro-USD: for showing, and for limits; never sum its results."""
    return (Decimal(charges) / CHARGES_PER_USD).quantize(Decimal("0.000001"), ROUND_HALF_EVEN)


class PriceSegment(NamedTuple):
    """A price and since when it is in force."""

    start_s: float
    price_micro_usd_hour: int


@dataclass(frozen=True)
class Usage:
    """What a bill is computed from.

    Attributes:
        launched_s: epoch seconds when billing began.
        ended_s: epoch seconds when it ended; None while it lasts.
        by_provider: whether the provider ended it.
        segments: prices by rising start; the first also holds before its start.
        on_demand_micro_usd_hour: price of the same type on demand.
        minimum_s: so many seconds are billed at least.
        free_first_s: free if the provider ends it earlier than this.
    """

    launched_s: float
    ended_s: float | None
    by_provider: bool
    segments: tuple[PriceSegment, ...]
    on_demand_micro_usd_hour: int
    minimum_s: float = 60.0
    free_first_s: float = 0.0

    def __post_init__(self) -> None:
        starts = [segment.start_s for segment in self.segments]
        if not starts or any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"price segments start at {starts}: expected at least one, by rising start")


@dataclass(frozen=True)
class Bill:
    """An amount that can be summed.

    Attributes:
        seconds: that instances ran (begun seconds, without what the minimum adds).
        cost: charges.
        on_demand: charges for the same instances over the same time on demand, with the same minimum.
    """

    seconds: int = 0
    cost: int = 0
    on_demand: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.seconds + other.seconds, self.cost + other.cost, self.on_demand + other.on_demand)

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

    Args:
        usage: of the instance.
        now_s: epoch seconds; later than the launch, or it has cost the minimum.
    """
    return sum(bill_by_day(usage, now_s).values(), Bill())


def bill_by_day(usage: Usage, now_s: float) -> dict[date, Bill]:
    """The same per UTC day in which the seconds began; the parts add up to the whole exactly."""
    launched = _microseconds(usage.launched_s)
    ended = max(launched, _microseconds(now_s if usage.ended_s is None else usage.ended_s))
    ran = -((launched - ended) // _SECOND_US)
    billed = max(ran, -(-_microseconds(usage.minimum_s) // _SECOND_US))
    free = (
        usage.ended_s is not None
        and usage.by_provider
        and ended - launched < _microseconds(usage.free_first_s)
    )
    days: dict[date, Bill] = {}
    for first, end, price in _stretches(launched, ran, billed, usage.segments):
        day = datetime.fromtimestamp((launched + first * _SECOND_US) // _SECOND_US, UTC).date()
        seconds = end - first
        days[day] = days.get(day, Bill()) + Bill(
            seconds=seconds if end <= ran else 0,
            cost=0 if free else seconds * price,
            on_demand=seconds * usage.on_demand_micro_usd_hour,
        )
    return days


def _microseconds(seconds: float) -> int:
    # Epoch seconds as floats resolve a quarter of a microsecond: nothing is lost, and comparisons are exact.
    return round(seconds * 1e6)


def _stretches(
    launched: int, ran: int, billed: int, segments: Sequence[PriceSegment]
) -> Iterator[tuple[int, int, int]]:
    """(first second, end, price) of stretches with one price, one day, either run or added by the minimum."""

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
        yield first, end, segments[current].price_micro_usd_hour
