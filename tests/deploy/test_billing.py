"""Bills against hand-computed amounts, and against a ledger that goes through every second."""

from __future__ import annotations

import calendar
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotweave.deploy.billing import (
    CHARGES_PER_USD,
    Bill,
    PriceSegment,
    Stop,
    Usage,
    bill,
    bill_by_day,
    micro_usd_hour,
    micro_usd_month,
    usd,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def usage(
    ran_s: float | None,
    *prices: tuple[float, float],
    launched_s: float = NOON,
    by_provider: bool = False,
    minimum_s: float = 60,
    free_first_s: float = 0,
    disk_usd_month: float = 0,
    stops: tuple[tuple[float, float | None], ...] = (),
) -> Usage:
    """Of an instance that ran so long; prices are (seconds after the launch, USD per hour), on demand 3.6.

    Stops are seconds after the launch too.
    """
    return Usage(
        launched_s=launched_s,
        ended_s=None if ran_s is None else launched_s + ran_s,
        by_provider=by_provider,
        segments=tuple(PriceSegment(launched_s + after, micro_usd_hour(price)) for after, price in prices),
        on_demand_micro_usd_hour=3_600_000,
        minimum_s=minimum_s,
        free_first_s=free_first_s,
        disk_micro_usd_month=micro_usd_month(disk_usd_month),
        stops=tuple(
            Stop(launched_s + stop, None if start is None else launched_s + start) for stop, start in stops
        ),
    )


FREE_HOUR: dict[str, Any] = {"by_provider": True, "free_first_s": 3600}


@pytest.mark.parametrize(
    ("used", "instance_usd", "on_demand_usd", "seconds"),
    [
        pytest.param(usage(3600, (0, 0.0035)), "0.0035", "3.6", 3600, id="an hour at one price"),
        # 10 s at 0.36 USD/h (0.0001 USD/s), 90 s at 0.72: the price changes within second 9, so second 10 is
        # the first at the new one.
        pytest.param(usage(100, (0, 0.36), (9.5, 0.72)), "0.019", "0.1", 100, id="the price at its begin"),
        pytest.param(usage(60.000001, (0, 3.6)), "0.061", "0.061", 61, id="a begun second"),
        pytest.param(usage(12, (0, 3.6)), "0.06", "0.06", 12, id="the minimum"),
        pytest.param(usage(12, (0, 3.6), by_provider=True), "0.06", "0.06", 12, id="whoever ends it"),
        pytest.param(usage(3599.9, (0, 3.6), **FREE_HOUR), "0", "3.6", 3600, id="taken in a free hour"),
        pytest.param(usage(3600, (0, 3.6), **FREE_HOUR), "3.6", "3.6", 3600, id="interrupted after it"),
        pytest.param(usage(3599, (0, 3.6), free_first_s=3600), "3.599", "3.599", 3599, id="stopped in it"),
    ],
)
def test_what_has_ended_costs(used: Usage, instance_usd: str, on_demand_usd: str, seconds: int) -> None:
    made = bill(used, NOON)
    assert (made.usd, made.on_demand_usd) == (Decimal(instance_usd), Decimal(on_demand_usd))
    assert made.seconds == seconds


def test_a_running_instance_costs_as_if_it_were_ended_now() -> None:
    running = usage(None, (0, 3.6), free_first_s=3600)
    amounts = [bill(running, NOON + after).usd for after in (-5, 30, 61)]
    assert amounts == [Decimal("0.06"), Decimal("0.06"), Decimal("0.061")]


def test_bills_are_added_and_taken_apart_part_by_part() -> None:
    one, other = Bill(1, 20, 300, 4000, 50_000), Bill(2, 30, 400, 5000, 60_000)
    assert one + other == Bill(3, 50, 700, 9000, 110_000)
    assert one + other - other == one


def test_midnight_utc_parts_a_bill() -> None:
    before = datetime(2026, 2, 28, 23, 59, 40, tzinfo=UTC).timestamp()
    made = bill_by_day(usage(90, (0, 3.6), (50, 7.2), launched_s=before), NOON)
    assert made == {
        date(2026, 2, 28): Bill(20, 20 * 3_600_000, 20 * 3_600_000),
        date(2026, 3, 1): Bill(70, 30 * 3_600_000 + 40 * 7_200_000, 70 * 3_600_000),
    }


def test_what_is_stopped_costs_nothing_until_it_is_started_again() -> None:
    stopped = usage(1000, (0, 3.6), stops=((100, None),))
    assert (bill(stopped, NOON).usd, bill(stopped, NOON).seconds) == (Decimal("0.1"), 100)
    still = usage(None, (0, 3.6), stops=((100, None),))
    amounts = [bill(still, NOON + after).usd for after in (30, 90, 100, 5000)]
    assert amounts == [Decimal(told) for told in ("0.06", "0.09", "0.1", "0.1")]
    # Each start is billed for a minute at least: 100 s, 60 s for the 10 that it ran, 800 s.
    again = usage(2000, (0, 3.6), stops=((100, 300), (310, 1200)))
    assert (bill(again, NOON).usd, bill(again, NOON).seconds) == (Decimal("0.96"), 910)
    assert bill(again, NOON).on_demand_usd == Decimal("0.96")
    # At the prices of its times.
    changed = usage(400, (0, 3.6), (150, 7.2), (320, 36.0), stops=((100, 300),))
    assert bill(changed, NOON).usd == Decimal("0.1") + 20 * Decimal("0.002") + 80 * Decimal("0.01")


def test_a_disk_costs_its_share_of_the_month_from_launch_to_end() -> None:
    # 50 GiB at 0.08 USD: 4 USD a month. March has 31 days of 86,400 s; 744 USD a month are one an hour.
    assert bill(usage(3600, (0, 0.0), disk_usd_month=744), NOON).usd == Decimal("1")
    made = bill(usage(43_200, (0, 3.6), disk_usd_month=4), NOON)
    assert usd(made.disk) == Decimal("0.064516")
    assert (made.instance, made.cost, made.egress) == (43_200 * 3_600_000, made.instance + made.disk, 0)
    assert made.on_demand == made.cost
    stopped = bill(usage(43_200, (0, 3.6), disk_usd_month=4, stops=((60, None),)), NOON)
    assert (stopped.disk, stopped.instance) == (made.disk, 60 * 3_600_000)
    assert bill(usage(3, (0, 0.0), disk_usd_month=744), NOON).usd == Decimal("0.016667"), "a minute at least"


def test_a_month_of_a_disk_costs_its_price_however_long_it_is() -> None:
    for month, days in ((2, 28), (3, 31), (4, 30)):
        start = datetime(2026, month, 1, tzinfo=UTC).timestamp()
        made = bill(usage(days * 86_400, (0, 0.0), launched_s=start, disk_usd_month=4), NOON)
        assert abs(made.cost - 4 * CHARGES_PER_USD) <= days
    # Half a day in February and half a day in March.
    start = datetime(2026, 2, 28, 12, tzinfo=UTC).timestamp()
    parts = bill_by_day(usage(86_400, (0, 0.0), launched_s=start, disk_usd_month=28 * 31), NOON)
    assert [usd(part.disk) for part in parts.values()] == [Decimal("15.5"), Decimal("14")]


def test_a_disk_costs_also_where_the_instance_is_free_but_not_where_it_never_ran() -> None:
    taken = usage(3599, (0, 3.6), by_provider=True, free_first_s=3600, disk_usd_month=744)
    assert (bill(taken, NOON).instance, bill(taken, NOON).usd) == (0, Decimal("0.999722"))
    never = usage(0, (0, 3.6), by_provider=True, free_first_s=1, disk_usd_month=744)
    assert bill(never, NOON).cost == 0
    at_once = usage(0, (0, 3.6), free_first_s=1, disk_usd_month=744)
    assert bill(at_once, NOON).usd == Decimal("0.076667"), "whoever ends it himself pays the minimum"


def test_amounts_are_rounded_only_when_shown() -> None:
    third = CHARGES_PER_USD // 3 // 1_000_000
    assert usd(third) == Decimal("0.000000")
    assert usd(third * 3_000_000) == Decimal("1.000000")
    assert usd(1_800) == Decimal("0.000000")
    assert usd(5_400) == Decimal("0.000002"), "a tie goes to the even micro-USD"


@pytest.mark.parametrize(
    ("prices", "stops", "message"),
    [
        *((((0, price),), (), "expected 0 or more") for price in (-0.1, float("nan"), float("inf"))),
        *((starts, (), "rising start") for starts in ((), ((1, 1.0), (1, 1.0)), ((2, 1.0), (1, 1.0)))),
        (((0, 1.0),), ((20, 10),), "by time"),
        (((0, 1.0),), ((10, None), (20, None)), "by time"),
        (((0, 1.0),), ((10, 30), (20, 40)), "by time"),
    ],
)
def test_prices_that_are_none_and_disorder_are_refused(prices: Any, stops: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        usage(100, *prices, stops=stops)


class Ledger:
    """An independent account: one entry per second, in exact fractions of a dollar."""

    def __init__(self) -> None:
        self.cost: defaultdict[date, Fraction] = defaultdict(Fraction)
        self.on_demand: defaultdict[date, Fraction] = defaultdict(Fraction)
        self.disk: defaultdict[date, Fraction] = defaultdict(Fraction)
        self.seconds = 0

    def enter(self, used: Usage, now_s: float) -> None:
        launch = _exact(used.launched_s)
        end = max(launch, _exact(now_s if used.ended_s is None else used.ended_s))
        free = used.ended_s is not None and used.by_provider and end - launch < Fraction(used.free_first_s)
        start = launch
        for stop in (*used.stops, None):
            self._run(used, start, end if stop is None else min(_exact(stop.stopped_s), end), free=free)
            if stop is not None and (stop.started_s is None or _exact(stop.started_s) >= end):
                break
            start = end if stop is None or stop.started_s is None else _exact(stop.started_s)
        second = 0
        has_disk = used.disk_micro_usd_month and not (free and end == launch)
        while has_disk and (launch + second < end or second < used.minimum_s):
            day = _day(launch + second)
            month_s = 86_400 * calendar.monthrange(day.year, day.month)[1]
            self.disk[day] += Fraction(used.disk_micro_usd_month, month_s * 10**6)
            second += 1

    def _run(self, used: Usage, start: Fraction, end: Fraction, *, free: bool) -> None:
        second = 0
        while start + second < end or second < used.minimum_s:
            begun = start + second
            price = used.segments[0].price_micro_usd_hour
            for segment in used.segments:
                if _exact(segment.start_s) <= begun:
                    price = segment.price_micro_usd_hour
            self.cost[_day(begun)] += 0 if free else Fraction(price, 3600 * 10**6)
            self.on_demand[_day(begun)] += Fraction(used.on_demand_micro_usd_hour, 3600 * 10**6)
            self.seconds += begun < end
            second += 1


def _exact(epoch_s: float) -> Fraction:
    return Fraction(round(epoch_s * 1e6), 10**6)


def _day(moment: Fraction) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(moment))).date()


milliseconds = st.integers(0, 400_000).map(lambda ms: ms / 1000)
moments = milliseconds.map(lambda after: datetime(2026, 2, 28, 23, 56, tzinfo=UTC).timestamp() + after)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    launched = draw(moments)
    starts = sorted(draw(st.sets(moments, min_size=1, max_size=6)))
    turns = sorted(launched + after for after in draw(st.lists(milliseconds, max_size=5)))
    stops = tuple(
        Stop(turn, turns[k + 1] if k + 1 < len(turns) else None) for k, turn in enumerate(turns) if k % 2 == 0
    )
    return Usage(
        launched_s=launched,
        ended_s=draw(st.none() | milliseconds.map(lambda ran: launched + ran)),
        by_provider=draw(st.booleans()),
        segments=tuple(PriceSegment(start, draw(st.integers(0, 10_000_000))) for start in starts),
        on_demand_micro_usd_hour=draw(st.integers(0, 10_000_000)),
        minimum_s=draw(st.sampled_from([0, 1, 60, 59.5])),
        free_first_s=draw(st.sampled_from([0, 100, 300])),
        disk_micro_usd_month=draw(st.integers(0, 100_000_000)),
        stops=stops,
    )


@pytest.mark.real
@given(st.lists(usages(), max_size=4), moments)
def test_bills_agree_with_a_ledger_of_every_second(used: list[Usage], now_s: float) -> None:
    ledger, total = Ledger(), Bill()
    days: defaultdict[date, Bill] = defaultdict(Bill)
    for one in used:
        ledger.enter(one, now_s)
        total += bill(one, now_s)
        for day, part in bill_by_day(one, now_s).items():
            days[day] += part
    assert Fraction(total.instance, CHARGES_PER_USD) == sum(ledger.cost.values())
    assert Fraction(total.on_demand - total.disk, CHARGES_PER_USD) == sum(ledger.on_demand.values())
    assert total.seconds == ledger.seconds
    assert days.keys() == ledger.cost.keys() | ledger.disk.keys()
    for day, part in days.items():
        assert Fraction(part.instance, CHARGES_PER_USD) == ledger.cost[day]
        # Each of them is rounded once a day, by half a charge at most.
        assert abs(part.disk - ledger.disk[day] * CHARGES_PER_USD) <= Fraction(len(used), 2)
    assert sum(days.values(), Bill()) == total


@given(usages(), moments, milliseconds)
def test_what_runs_never_gets_cheaper_but_by_an_interruption(used: Usage, now_s: float, later: float) -> None:
    running = replace(used, ended_s=None, by_provider=False, free_first_s=0.0)
    assert bill(running, now_s).cost <= bill(running, now_s + later).cost


@pytest.mark.parametrize(
    ("price_usd", "micro_usd"), [(0.0, 0), (0.1558, 155_800), (3.0600004, 3_060_000), (3.0600006, 3_060_001)]
)
def test_prices_are_rounded_to_the_nearest_micro_usd(price_usd: float, micro_usd: int) -> None:
    assert micro_usd_hour(price_usd) == micro_usd_month(price_usd) == micro_usd
