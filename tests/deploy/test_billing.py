"""Bills against hand-computed amounts, and against a ledger that goes through every second."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.billing import CHARGES_PER_USD, Bill, PriceSegment, Usage, bill, bill_by_day, micro_usd_hour, usd

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def usage(
    ran_s: float | None,
    *prices: tuple[float, float],
    launched_s: float = NOON,
    by_provider: bool = False,
    minimum_s: float = 60,
    free_first_s: float = 0,
) -> Usage:
    """Of an instance that ran so long; prices are (seconds after the launch, USD per hour), on demand 3.6."""
    return Usage(
        launched_s=launched_s,
        ended_s=None if ran_s is None else launched_s + ran_s,
        by_provider=by_provider,
        segments=tuple(PriceSegment(launched_s + after, micro_usd_hour(price)) for after, price in prices),
        on_demand_micro_usd_hour=3_600_000,
        minimum_s=minimum_s,
        free_first_s=free_first_s,
    )


def test_an_hour_at_one_price_costs_that_price() -> None:
    made = bill(usage(3600, (0, 0.0035)), now_s=NOON)
    assert made.usd == Decimal("0.003500")
    assert made.on_demand_usd == Decimal("3.600000")
    assert made.seconds == 3600


def test_each_second_costs_the_price_at_its_begin() -> None:
    # 10 s at 0.36 USD/h (0.0001 USD/s), 90 s at 0.72: the price changes within second 9, so second 10 is the
    # first at the new one.
    assert bill(usage(100, (0, 0.36), (9.5, 0.72)), now_s=NOON).usd == Decimal("0.019000")


def test_a_begun_second_is_billed() -> None:
    assert bill(usage(60.000001, (0, 3.6)), now_s=NOON).usd == Decimal("0.061000")


def test_the_minimum_is_billed_whoever_ends_it() -> None:
    for by_provider in (False, True):
        made = bill(usage(12, (0, 3.6), by_provider=by_provider), now_s=NOON)
        assert made.usd == Decimal("0.060000")
        assert made.on_demand_usd == Decimal("0.060000")
        assert made.seconds == 12


def test_an_interruption_within_the_first_hour_is_free_and_a_stop_is_not() -> None:
    prices = ((0, 3.6),)
    assert bill(usage(3599.9, *prices, by_provider=True, free_first_s=3600), NOON).cost == 0
    assert bill(usage(3599.9, *prices, by_provider=True, free_first_s=3600), NOON).on_demand_usd == Decimal(
        "3.6"
    )
    assert bill(usage(3600, *prices, by_provider=True, free_first_s=3600), NOON).usd == Decimal("3.6")
    assert bill(usage(3599, *prices, by_provider=False, free_first_s=3600), NOON).usd == Decimal("3.599")


def test_a_running_instance_costs_as_if_it_were_ended_now() -> None:
    running = usage(None, (0, 3.6), free_first_s=3600)
    assert bill(running, NOON - 5).usd == Decimal("0.06")
    assert bill(running, NOON + 30).usd == Decimal("0.06")
    assert bill(running, NOON + 61).usd == Decimal("0.061")


def test_midnight_utc_parts_a_bill() -> None:
    before = datetime(2026, 2, 28, 23, 59, 40, tzinfo=UTC).timestamp()
    made = bill_by_day(usage(90, (0, 3.6), (50, 7.2), launched_s=before), NOON)
    assert made == {
        date(2026, 2, 28): Bill(20, 20 * 3_600_000, 20 * 3_600_000),
        date(2026, 3, 1): Bill(70, 30 * 3_600_000 + 40 * 7_200_000, 70 * 3_600_000),
    }


def test_amounts_are_rounded_only_when_shown() -> None:
    third = CHARGES_PER_USD // 3 // 1_000_000
    assert usd(third) == Decimal("0.000000")
    assert usd(third * 3_000_000) == Decimal("1.000000")
    assert usd(1_800) == Decimal("0.000000")
    assert usd(5_400) == Decimal("0.000002"), "a tie goes to the even micro-USD"


@pytest.mark.parametrize("price", [-0.1, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(ValueError, match="expected 0 or more"):
        micro_usd_hour(price)


@pytest.mark.parametrize("starts", [(), (1.0, 1.0), (2.0, 1.0)])
def test_segments_in_disorder_are_refused(starts: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rising start"):
        usage(10, *((start, 1.0) for start in starts))


class Ledger:
    """An independent account: one entry per second, in exact fractions of a dollar."""

    def __init__(self) -> None:
        self.cost: defaultdict[date, Fraction] = defaultdict(Fraction)
        self.on_demand: defaultdict[date, Fraction] = defaultdict(Fraction)
        self.seconds = 0

    def enter(self, used: Usage, now_s: float) -> None:
        """Go through every second of the instance."""
        start = Fraction(round(used.launched_s * 1e6), 10**6)
        end = Fraction(round((now_s if used.ended_s is None else used.ended_s) * 1e6), 10**6)
        free = used.ended_s is not None and used.by_provider and end - start < Fraction(used.free_first_s)
        second = 0
        while start + second < end or second < used.minimum_s:
            begun = start + second
            price = used.segments[0].price_micro_usd_hour
            for segment in used.segments:
                if Fraction(round(segment.start_s * 1e6), 10**6) <= begun:
                    price = segment.price_micro_usd_hour
            day = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(begun))).date()
            self.cost[day] += 0 if free else Fraction(price, 3600 * 10**6)
            self.on_demand[day] += Fraction(used.on_demand_micro_usd_hour, 3600 * 10**6)
            self.seconds += begun < end
            second += 1


milliseconds = st.integers(0, 400_000).map(lambda ms: ms / 1000)
moments = milliseconds.map(lambda after: datetime(2026, 2, 28, 23, 56, tzinfo=UTC).timestamp() + after)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    launched = draw(moments)
    starts = sorted(draw(st.sets(moments, min_size=1, max_size=6)))
    return Usage(
        launched_s=launched,
        ended_s=draw(st.none() | milliseconds.map(lambda ran: launched + ran)),
        by_provider=draw(st.booleans()),
        segments=tuple(PriceSegment(start, draw(st.integers(0, 10_000_000))) for start in starts),
        on_demand_micro_usd_hour=draw(st.integers(0, 10_000_000)),
        minimum_s=draw(st.sampled_from([0, 1, 60, 59.5])),
        free_first_s=draw(st.sampled_from([0, 100, 300])),
    )


@given(st.lists(usages(), max_size=4), moments)
def test_bills_agree_with_a_ledger_of_every_second(used: list[Usage], now_s: float) -> None:
    ledger, total = Ledger(), Bill()
    days: defaultdict[date, Bill] = defaultdict(Bill)
    for one in used:
        ledger.enter(one, now_s)
        total += bill(one, now_s)
        for day, part in bill_by_day(one, now_s).items():
            days[day] += part
    assert Fraction(total.cost, CHARGES_PER_USD) == sum(ledger.cost.values())
    assert Fraction(total.on_demand, CHARGES_PER_USD) == sum(ledger.on_demand.values())
    assert total.seconds == ledger.seconds
    assert {day: Fraction(part.cost, CHARGES_PER_USD) for day, part in days.items()} == dict(ledger.cost)
    assert sum(days.values(), Bill()) == total


@given(usages(), moments, milliseconds)
def test_what_runs_never_gets_cheaper_but_by_an_interruption(used: Usage, now_s: float, later: float) -> None:
    running = Usage(
        used.launched_s, None, False, used.segments, used.on_demand_micro_usd_hour, used.minimum_s
    )
    assert bill(running, now_s).cost <= bill(running, now_s + later).cost
