"""A thousand hours on an AWS where everything goes wrong: nothing lost, nothing leaked, bills exact.

Disks are billed to the cent: to a 3.6 thousand millionth of a dollar for each instance and day.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from deploy.billing import usd
from deploy.cli.clouds import unneeded
from deploy.emulator.faults import FaultConfig
from deploy.emulator.ledger import Entry, total_usd
from deploy.model.jobs import JobSpec, JobState, Places
from deploy.providers.aws import names
from tests.deploy.bills import wrong_charges
from tests.deploy.emulator.aws.chaos import HOUR_S, ON_DEMAND, TROUBLES, AwsWorld, agree, spells, troubles
from tests.deploy.emulator.aws.conftest import START_S
from tests.deploy.scheduler.worlds import batch

FAULTS = {
    "error": 0.05,
    "lost": 0.01,
    "launch_failure": 0.25,
    "launch_death": 0.02,
    "calls_per_s": 0.1,
    "burst": 6,
    "describe_delay_s": 30.0,
}
TOGETHER = 3
RESTART_EVERY_H = 100.0
STOP_EVERY_H = 5.0


def job(n: int) -> JobSpec:
    """2 to 33 hours of work.

    Of ten jobs three have a budget that is enough, and one has one that is not; of twenty one runs on demand
    only.
    """
    hours = 2.0 + 31.0 * (n * 0.618 % 1.0)
    instances = 1 + (n % 3 == 0)
    fair_usd = 0.526 * hours * instances
    budgets = {1: 2 * fair_usd, 4: 2 * fair_usd, 5: fair_usd / 8, 8: 2 * fair_usd}
    places = Places(markets=("on_demand",)) if n % 20 == 9 else Places()
    return batch(
        f"job{n}",
        work_s=hours * HOUR_S,
        instances=instances,
        budget_usd=budgets.get(n % 10),
        places=places,
    )


def rehearse(world: AwsWorld, hours: float) -> tuple[dict[str, JobSpec], int]:
    """Some jobs at any time for so long, and then what is left of them.

    Returns:
        All jobs, by their ids; how many instances somebody stopped.
    """
    given: dict[str, JobSpec] = {}
    stops = 0
    began_s = restarted_s = stopped_s = world.clock.now()
    while True:
        live = world.store.jobs.live()
        if world.clock.now() < began_s + hours * HOUR_S:
            for _ in range(TOGETHER - len(live)):
                spec = job(len(given))
                given[world.submit(spec)] = spec
        elif not live:
            break
        if world.clock.now() >= restarted_s + RESTART_EVERY_H * HOUR_S:
            restarted_s = world.clock.now()
            world.restart()
        if world.clock.now() >= stopped_s + STOP_EVERY_H * HOUR_S and world.stop_one():
            stopped_s = world.clock.now()
            stops += 1
        world.go(world.pause_s())
    world.go(2 * HOUR_S)
    return given, stops


def check(world: AwsWorld, given: dict[str, JobSpec]) -> None:
    """Jobs, instances, bills and budgets at the end."""
    store = world.store
    ended = {one.job_id: one for one in store.jobs.latest(len(given) + 1)}
    assert ended.keys() == given.keys()
    poor = {name for name, one in ended.items() if one.state is not JobState.SUCCEEDED}
    assert {ended[name].state for name in poor} <= {JobState.FAILED}
    assert all("budget" in ended[name].reason for name in poor), [ended[name].reason for name in poor]
    assert poor == {f"job{n}-1" for n in range(len(given)) if n % 10 == 5}
    assert {key.job_id: times for key, times in world.cloud.completions.items()} == dict.fromkeys(
        given.keys() - poor, 1
    )
    world.emulator.faults.change(FaultConfig())
    assert world.leaked() == []
    assert unneeded(store, world.aws) == []
    assert store.instances.live() == []
    assert store.intents.pending() == []
    assert wrong_charges(store) == []


def until_its_end(entry: Entry) -> Entry:
    """Its bill if it was never stopped.

    EC2 tells when an instance was turned last, only. Somebody may stop one and the scheduler, whose task was
    lost, end it before its next look: then nothing tells of the stop, and the bill goes up to the end.
    """
    if entry.market == "spot" or entry.ended_s is None or entry.running_s is None:
        return entry
    seconds = int(entry.ended_s) - int(entry.launched_s)
    if seconds == entry.seconds:
        return entry
    cost = Fraction(round(ON_DEMAND * 1_000_000) * max(seconds, 60), 3600)
    return replace(entry, seconds=seconds, micro_usd=f"{cost.numerator}/{cost.denominator}")


def check_bills(world: AwsWorld, given: dict[str, JobSpec]) -> None:
    """Every job's, and the sum, against the cloud's own ledger."""
    now_s, store = world.clock.now(), world.store
    told: dict[str, set[str]] = {"instance.found": set(), "instance.stopped": set()}
    for event in store.events.after(0, 1_000_000):
        if event.kind in told:
            told[event.kind].add(str(store.instances.get(str(event.instance_id)).provider_id))
    found, stopped = told["instance.found"], told["instance.stopped"]
    ledger = world.emulator.ledger()
    entries = [one if one.instance_id in stopped else until_its_end(one) for one in ledger]
    for name, spec in given.items():
        mine = [entry for entry in entries if entry.tags[names.JOB] == name]
        assert agree(store.costs.of_job(name, now_s), mine), name
        # What was not shown could be neither counted nor ended.
        unseen = [entry for entry in mine if entry.instance_id in found]
        assert spec.budget_usd is None or total_usd(mine) <= spec.budget_usd + total_usd(unseen), name
    unseen_stops = [one for one, ours in zip(ledger, entries, strict=True) if one != ours]
    assert len(unseen_stops) <= 2, unseen_stops
    total = store.costs.total(now_s)
    assert agree(total, entries)
    assert round(float(total.usd), 2) == round(float(total_usd(entries)), 2)
    assert total.disk > 0


@pytest.mark.parametrize(
    ("hours", "troubles_every_h", "interruptions", "failures", "stopped"),
    [
        pytest.param(1000.0, 24.0, 500, 200, 5, marks=pytest.mark.long),
        pytest.param(36.0, 3.0, 6, 6, 0, marks=pytest.mark.slow),
    ],
)
def test_chaos(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hours: float,
    troubles_every_h: float,
    interruptions: int,
    failures: int,
    stopped: int,
) -> None:
    emulated = {
        "pools": spells(tmp_path, 1, hours + 100.0, up_s=15_000),
        "launch_s": 25.0,
        "spot_quota": {"g": 400},
        "on_demand_quota": {"g": 400},
        "faults": {**FAULTS, "spells": troubles(START_S, hours, troubles_every_h)},
    }
    world = AwsWorld(tmp_path, emulated, monkeypatch)
    given, stops = rehearse(world, hours)
    faults = Counter(world.emulator.faults.counts)
    calls = sum(world.emulator.calls.values())
    ran_h = (world.clock.now() - START_S) / HOUR_S
    check(world, given)
    check_bills(world, given)
    rented_h = sum(entry.seconds for entry in world.emulator.ledger()) / HOUR_S
    print(f"\n{ran_h:.0f} h, {len(given)} jobs, {rented_h:.0f} instance-hours, {world.passes} passes")
    print(f"{calls} calls, {faults}")
    taken, rented = world.emulator.world.interruptions, len(world.emulator.world.instances)
    print(f"{taken} interruptions of {rented} instances, {stops} stopped by somebody")
    total = world.store.costs.total(world.clock.now())
    print(f"{total.usd} USD, {usd(total.disk)} of them for disks")
    assert ran_h >= hours
    assert taken >= interruptions
    assert stops >= stopped
    assert faults["launch failure"] >= failures
    assert faults["throttled"] > 0
    troubled = {answer: faults[answer] for _, answer, _ in TROUBLES}
    assert all(troubled.values()), troubled
    if hours >= 1000:
        struck = sum(troubled.values()) - troubled["lost"] - troubled["empty"] + faults["throttled"]
        assert 0.04 < faults["error"] / (calls - struck) < 0.06
