"""What instances cost, from the prices that were seen while they ran."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from spotweave.deploy.billing import CHARGES_PER_USD, Bill, PriceSegment, Usage, usd
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.store.costs import Grouping
from spotweave.deploy.store.store import Store
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.store.cases import ON_DEMAND, SPOT, add_job, execute, price, rent, report, request
from tests.deploy.store.conftest import NOW, Place
from tests.deploy.test_billing import Ledger

GONE = InstanceState.TERMINATED


def test_an_instance_costs_its_price_while_it_runs_and_after(store: Store) -> None:
    add_job(store)
    request(store)
    assert bill_of(store, "i1", NOW + 99) == Bill(), "asked for, but not launched"
    report(store, launched_s=NOW + 10)
    # 100 s at 0.036 USD/h.
    assert store.costs.total(NOW + 110).usd == Decimal("0.001000")
    report(store, state=GONE, launched_s=NOW + 10, ended_s=NOW + 210, now_s=NOW + 300)
    for costs in (store.costs.total(NOW + 900), store.costs.of_job("j1", NOW + 900)):
        assert (costs.usd, costs.on_demand_usd) == (Decimal("0.002000"), Decimal("0.005333"))
        assert costs.seconds == 200
    request(store, "i2")
    with store.transaction():
        store.instances.ended("i2", NOW + 300)
    assert bill_of(store, "i2", NOW + 900) == Bill(), "it never was"
    assert wrong_charges(store) == []


def test_prices_hold_from_when_the_provider_dates_them(store: Store) -> None:
    def seen(now_s: float, *steps: tuple[float, float], available: bool = True) -> int:
        offer = replace(SPOT, price_usd_hour=steps[-1][1], price_steps=steps, available=available)
        with store.transaction():
            return store.prices.record([offer], now_s)

    add_job(store)
    old = (NOW - 50_000, 0.36)
    seen(NOW - 100, old)
    for name, ended_s in (("i1", NOW + 100), ("i2", NOW + 30), ("i3", NOW + 9)):
        rent(store, name, state=GONE, ended_s=ended_s, now_s=ended_s)
    rent(store, "i4")
    # Written down before anybody knew of the new prices.
    assert seen(NOW + 110, old, available=False) == 1
    # Within one look it went up and down again; both are told together, and late.
    news = (old, (NOW + 20, 3.6), (NOW + 50, 0.36))
    assert seen(NOW + 120, *news, available=False) == 1
    assert seen(NOW + 121, *news, available=False) == 0
    costs = [bill_of(store, name, NOW + 200).usd for name in ("i1", "i2", "i3", "i4")]
    # 0.0001 USD a second, and 0.001 in 30 of them; the minimum of 60 s lies partly in them too.
    assert costs == [Decimal("0.037"), Decimal("0.033"), Decimal("0.033"), Decimal("0.047")]
    assert wrong_charges(store) == []
    quotes = store.prices.between(SPOT.offer_id, NOW - 200, NOW + 200)
    assert [(one.seen_s - NOW, one.price_micro_usd_hour, one.available) for one in quotes] == [
        (-100, 360_000, True),
        (20, 3_600_000, True),
        (50, 360_000, True),
        (110, 360_000, False),
    ]


def test_on_demand_instances_keep_the_price_they_were_asked_for_at(store: Store) -> None:
    rent(store, offer=ON_DEMAND)
    with store.transaction():
        store.prices.record([replace(ON_DEMAND, price_usd_hour=9.0)], NOW + 10)
    bill = store.costs.total(NOW + 3600)
    assert bill.usd == bill.on_demand_usd == Decimal("0.096")


def test_an_early_interruption_is_free_also_if_it_is_told_late(store: Store) -> None:
    rent(store)
    with store.transaction():
        assert store.instances.ended("i1", NOW + 1000)
        assert not store.instances.ended("i1", NOW + 2000)
    assert store.costs.of_job("j1", NOW).usd == Decimal("0.01")
    report(store, state=GONE, ended_s=NOW + 1000, by_provider=True, now_s=NOW + 4000)
    assert store.costs.of_job("j1", NOW).usd == 0
    assert store.costs.of_job("j1", NOW).on_demand_usd == Decimal("0.026667")
    assert wrong_charges(store) == []


DISK = replace(ON_DEMAND, disk_usd_month=744.0, free_first_s=1.0)
"""One USD an hour in March; the instance is 0.096."""


def test_a_stopped_instance_costs_its_disk_from_the_time_that_its_provider_says(store: Store) -> None:
    rent(store, offer=DISK)
    STOPPED, RUNNING = InstanceState.STOPPED, InstanceState.RUNNING
    assert report(store, state=STOPPED, stopped_s=NOW + 3600, now_s=NOW + 3605).state is STOPPED
    assert report(store, state=STOPPED, stopped_s=NOW + 3600, now_s=NOW + 9000).stops == ((NOW + 3600, None),)
    bill = store.costs.of_job("j1", NOW + 7200)
    assert (bill.usd, usd(bill.disk), bill.seconds) == (Decimal("2.096"), Decimal(2), 3600)
    # Somebody starts it again; it stays ours to end, and costs again from EC2's own time of that start.
    again = report(store, state=RUNNING, launched_s=NOW + 7200, now_s=NOW + 7210)
    assert (again.state, again.launched_s) == (STOPPED, NOW)
    assert again.stops == ((NOW + 3600, NOW + 7200),)
    bill = store.costs.of_job("j1", NOW + 10_800)
    assert (bill.usd, bill.seconds) == (Decimal("3.192"), 7200)
    # An answer that is older than the last one changes nothing.
    assert report(store, state=STOPPED, stopped_s=NOW + 3600).stops == again.stops
    report(store, state=GONE, launched_s=NOW + 7200, ended_s=NOW + 10_800)
    assert store.costs.of_job("j1", NOW) == bill
    assert wrong_charges(store) == []


def test_an_instance_that_is_ended_while_it_is_stopped_costs_nothing_more(store: Store) -> None:
    for name in ("i1", "i2"):
        rent(store, name, DISK)
    # One is seen so while we end it; of the other nobody says since when.
    with store.transaction():
        store.instances.stopping("i1")
    known = report(store, "i1", state=InstanceState.STOPPED, stopped_s=NOW + 600, now_s=NOW + 700)
    assert (known.state, known.stops) == (InstanceState.STOPPING, ((NOW + 600, None),))
    for now_s in (NOW + 600, NOW + 900):
        known = report(store, "i2", state=InstanceState.STOPPED, now_s=now_s)
        assert known.stops == ((NOW + 600, None),)
    for name in ("i1", "i2"):
        report(store, name, state=GONE, ended_s=NOW + 3600, now_s=NOW + 3700)
        bill = bill_of(store, name, NOW)
        assert (bill.usd, usd(bill.disk)) == (Decimal("1.016"), Decimal(1))
    assert wrong_charges(store) == []


def test_a_start_that_follows_a_stop_which_nobody_saw_is_billed_for_its_own_minimum(store: Store) -> None:
    rent(store, offer=DISK, launched_s=NOW - 30)
    report(store)
    with store.transaction():
        store.instances.ready("i1", NOW + 60)
    report(store, launched_s=NOW + 3600)
    report(store, state=GONE, launched_s=NOW + 3600, ended_s=NOW + 3601)
    bill = store.costs.of_job("j1", NOW)
    assert (bill.instance, bill.seconds) == (3660 * 96_000, 3601)


def test_costs_are_listed_by_job_offer_zone_market_and_day(store: Store) -> None:
    add_job(store, "j1")
    add_job(store, "j2")
    request(store, "i1", SPOT, "j1")
    request(store, "i2", ON_DEMAND, "j2")
    request(store, "i3", SPOT, "j2")
    report(store, "i1", launched_s=NOW - 100)
    report(store, "i1", state=GONE, launched_s=NOW - 100, ended_s=NOW + 100)
    report(store, "i2", launched_s=NOW)
    report(store, "i3", launched_s=NOW)
    at = NOW + 1000
    found = {
        grouping: {name: float(bill.usd) for name, bill in store.costs.by(grouping, at).items()}
        for grouping in Grouping
    }
    assert found == {
        Grouping.JOB: {"j1": 0.002, "j2": 0.036667},
        Grouping.OFFER: {ON_DEMAND.offer_id: 0.026667, SPOT.offer_id: 0.012},
        Grouping.ZONE: {"aws/us-east-1": 0.026667, "aws/us-east-1/us-east-1a": 0.012},
        Grouping.MARKET: {"on_demand": 0.026667, "spot": 0.012},
        Grouping.DAY: {"2026-02-28": 0.001, "2026-03-01": 0.037667},
    }
    for grouping in Grouping:
        assert store.costs.latest(grouping, 9, at) == store.costs.by(grouping, at)
    sums = {sum((bill.cost for bill in store.costs.by(grouping, at).values()), 0) for grouping in Grouping}
    assert sums == {store.costs.total(at).cost}


def test_the_latest_groups_are_the_newest_jobs_and_the_last_days(store: Store) -> None:
    for number in range(5):
        job_id, began_s = f"j{9 - number}", NOW + number * 86_400.0
        add_job(store, job_id, submitted_s=began_s)
        request(store, f"i{number}", ON_DEMAND, job_id, now_s=began_s)
        report(store, f"i{number}", state=GONE, launched_s=began_s, ended_s=began_s + 100)
    add_job(store, "never-rented")
    at = NOW + 1e6
    assert list(store.costs.latest(Grouping.JOB, 2, at)) == ["j5", "j6"]
    assert list(store.costs.latest(Grouping.DAY, 2, at)) == ["2026-03-04", "2026-03-05"]
    assert list(store.costs.latest(Grouping.MARKET, 2, at)) == ["on_demand"]
    assert len(store.costs.latest(Grouping.JOB, 99, at)) == 5


def test_the_audit_finds_what_was_changed_behind_the_stores_back(place: Place) -> None:
    with place.open() as store:
        rent(store)
        report(store, state=GONE, ended_s=NOW + 100)
        execute(place, "UPDATE charges SET cost = cost + 3600000")
        (wrong,) = wrong_charges(store)
        assert wrong == "instance i1: 0.002000 USD are written down, its prices make 0.001000 USD"


def test_only_changes_of_a_price_are_kept(store: Store) -> None:
    assert price(store, 0.04, NOW) == 2, "both offers are new"
    assert price(store, 0.04, NOW + 30) == 0
    assert price(store, 0.04, NOW + 60, available=False) == 1
    assert price(store, 0.05, NOW + 50) == 1, "the clock was set back"
    quotes = store.prices.between(SPOT.offer_id, NOW + 10, NOW + 100)
    assert [(quote.seen_s, quote.price_micro_usd_hour, quote.available) for quote in quotes] == [
        (NOW, 40_000, True),
        (NOW + 60, 50_000, True),
    ]
    assert store.prices.at(SPOT.offer_id, NOW - 1) is None
    latest = store.prices.at(SPOT.offer_id)
    assert latest is not None
    assert latest.price_micro_usd_hour == 50_000


_numbers = itertools.count()
_moments = st.integers(0, 500_000).map(lambda ms: NOW - 200 + ms / 1000)
_changes = st.lists(
    st.tuples(_moments, st.integers(0, 5_000_000)), max_size=5, unique_by=lambda change: change[0]
)


@pytest.mark.real
@given(
    _changes, _moments, st.integers(0, 300_000), st.integers(0, 100_000), st.booleans(), st.none() | _moments
)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_charges_agree_with_a_ledger_of_every_second(
    store: Store,
    changes: list[tuple[float, int]],
    launched_s: float,
    ran_ms: int,
    told_ms: int,
    by_provider: bool,
    end_told_s: float | None,
) -> None:
    """Prices change and the launch is told at any moments; the end is told after the last of them."""
    number = next(_numbers)
    offer = replace(SPOT, offer_id=f"offer-{number}", price_usd_hour=1.0, free_first_s=200.0)
    add_job(store, job_id := f"j{number}")
    request(store, name := f"i{number}", offer, job_id, now_s=NOW - 200)
    told_s = launched_s + told_ms / 1000
    steps = sorted([*changes, (told_s, -1)])
    for moment, micro in steps:
        if micro < 0:
            report(store, name, launched_s=launched_s, now_s=moment, by_provider=by_provider)
        else:
            with store.transaction():
                store.prices.record([replace(offer, price_usd_hour=micro / 1e6)], moment)
    ended_s = launched_s + ran_ms / 1000
    after = max(ended_s, steps[-1][0])
    segments = {launched_s: 1_000_000}
    for moment, micro in sorted(changes):
        segments[max(moment, launched_s)] = micro
    prices = tuple(PriceSegment(*segment) for segment in sorted(segments.items()))
    used = Usage(launched_s, ended_s, by_provider, prices, 96_000, 60.0, 200.0)
    now_s = max(launched_s, end_told_s or after)
    running, ended = Ledger(), Ledger()
    running.enter(replace(used, ended_s=None), now_s)
    ended.enter(used, 0.0)
    assert Fraction(store.costs.of_job(job_id, now_s).cost, CHARGES_PER_USD) == sum(running.cost.values())
    report(store, name, GONE, launched_s, now_s=after, ended_s=ended_s, by_provider=by_provider)
    bill = store.costs.of_job(job_id, 0.0)
    assert Fraction(bill.cost, CHARGES_PER_USD) == sum(ended.cost.values())
    assert Fraction(bill.on_demand, CHARGES_PER_USD) == sum(ended.on_demand.values())
    assert bill.seconds == ended.seconds
    assert wrong_charges(store) == []


def test_a_move_of_data_is_charged_to_its_job_once_for_each_attempt(store: Store) -> None:
    for name in ("j1", "j2"):
        rent(store, f"i-{name}", SPOT, name, launched_s=NOW)
    key, instance = TaskKey("j1", "main"), store.instances.get("i-j1")
    charges = 2 * CHARGES_PER_USD // 100
    with store.transaction():
        store.egress.add(key, 1, instance, charges, NOW)
        store.egress.add(key, 2, instance, charges, NOW - 86_400)
    with pytest.raises(IntegrityError), store.transaction():
        store.egress.add(key, 2, instance, charges, NOW)
    # 1000 s at 0.036 USD an hour each, while they run and after.
    at = NOW + 1000
    for _ in range(2):
        bills = store.costs.of_jobs(["j1", "j2"], at)
        assert [(bill.usd, usd(bill.egress)) for bill in bills.values()] == [
            (Decimal("0.05"), Decimal("0.04")),
            (Decimal("0.01"), Decimal(0)),
        ]
        assert bills["j1"].on_demand_usd - bills["j2"].on_demand_usd == Decimal("0.04")
        assert store.costs.of_tasks("j1", at)["main"] == bills["j1"]
        whole = store.costs.total(at)
        assert (whole.usd, usd(whole.egress), whole.seconds) == (Decimal("0.06"), Decimal("0.04"), 2000)
        for grouping in Grouping:
            assert sum(store.costs.by(grouping, at).values(), Bill()) == whole
        days = store.costs.by(Grouping.DAY, at)
        assert [usd(bill.egress) for bill in days.values()] == [Decimal("0.02"), Decimal("0.02")]
        for name in ("i-j1", "i-j2"):
            report(store, name, state=GONE, launched_s=NOW, ended_s=at)
    assert wrong_charges(store) == []
