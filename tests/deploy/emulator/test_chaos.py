"""A thousand hours on a cloud where everything goes wrong, and one of two clouds that refuses everything.

Nothing is lost, nothing leaked, bills are exact: disks' to a 3.6 thousand millionth of a dollar for each
instance and day. Deadlines are kept in the cloud that is left; moves are told and billed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.billing import Bill, Transfers, usd
from spotweave.deploy.cli.clouds import unneeded
from spotweave.deploy.emulator.config import FaultConfig
from spotweave.deploy.emulator.ledger import Entry, total_usd
from spotweave.deploy.model.jobs import JobSpec, JobState, Places, Profile, SparkBatch
from spotweave.deploy.providers.gcp import listing
from spotweave.deploy.scheduler.settings import SchedulerSettings
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.emulator.transport import START_S, trace
from tests.deploy.emulator.worlds import (
    CLOUDS,
    HOUR_S,
    SETTINGS,
    Account,
    AwsWorld,
    CloudWorld,
    GcpWorld,
    agree,
    aws_account,
    gcp_account,
)
from tests.deploy.scheduler.worlds import batch

FAULTS = {
    "error": 0.05,
    "lost": 0.01,
    "launch_failure": 0.25,
    "calls_per_s": 0.1,
    "burst": 6,
    "describe_delay_s": 30.0,
}
TOGETHER = 3
RESTART_EVERY_H = 100.0
STOP_EVERY_H = 5.0


def spells(folder: Path, hours: float, zones: Sequence[str], pool: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Pools whose capacity ends again and again, and whose prices move meanwhile."""
    rng = random.Random(1)
    pools = []
    for k, zone in enumerate(zones):
        rows, at_s, up = [], 0, 1
        while at_s < hours * HOUR_S:
            end_s = at_s + 300 + int(rng.expovariate(1 / (15_000 if up else 3_000)))
            while at_s < end_s:
                price = round(0.15 + 0.01 * k + 0.06 * rng.random(), 4)
                rows.append((at_s, up, price))
                at_s += 60 + int(rng.expovariate(1 / 7200))
            at_s, up = end_s, 1 - up
        rows.append((at_s, up, 0.2))
        pools.append({**pool, "zone": zone, "trace": trace(folder, zone, rows)})
    return pools


def troubles(world: type[CloudWorld], hours: float, every_h: float) -> list[dict[str, Any]]:
    """One after the other, in one region, in the other, and in both."""
    found = []
    for k in range(int(hours / every_h)):
        actions, answer, lasts_h = world.troubles[k % len(world.troubles)]
        at_s = START_S + (k + 0.5) * every_h * HOUR_S
        where = ((world.regions[0],), (world.regions[1],), ())[k // len(world.troubles) % 3]
        when = {"start_s": at_s, "end_s": at_s + lasts_h * HOUR_S}
        found.append({**when, "actions": [actions], "regions": where, "answer": answer})
    return found


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
        f"job{n}", work_s=hours * HOUR_S, instances=instances, budget_usd=budgets.get(n % 10), places=places
    )


def rehearse(world: CloudWorld, hours: float) -> tuple[dict[str, JobSpec], int]:
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


def check(world: CloudWorld, given: dict[str, JobSpec]) -> None:
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
    assert [one for provider in world.rented.values() for one in unneeded(store, provider)] == []
    assert store.instances.live() == []
    assert store.intents.pending() == []
    assert wrong_charges(store) == []


def until_its_end(entry: Entry, on_demand_usd_hour: float) -> Entry:
    """Its bill if it was never stopped.

    Clouds tell when an instance was turned last, only. Somebody may stop one and the scheduler, whose task
    was lost, end it before its next look: then nothing tells of the stop, and the bill goes up to the end.
    """
    if entry.market == "spot" or entry.ended_s is None or entry.running_s is None:
        return entry
    seconds = int(entry.ended_s) - int(entry.launched_s)
    if seconds == entry.seconds:
        return entry
    cost = Fraction(round(on_demand_usd_hour * 1_000_000) * max(seconds, 60), 3600)
    return replace(entry, seconds=seconds, micro_usd=f"{cost.numerator}/{cost.denominator}")


def check_bills(world: CloudWorld, given: dict[str, JobSpec]) -> None:
    """Every job's, and the sum, against the cloud's own ledger."""
    now_s, store = world.clock.now(), world.store
    told: dict[str, set[str]] = {"instance.found": set(), "instance.stopped": set()}
    for event in store.events.after(0, 1_000_000):
        if event.kind in told:
            told[event.kind].add(str(store.instances.get(str(event.instance_id)).provider_id))
    found, stopped = told["instance.found"], told["instance.stopped"]
    ledger = world.emulator.ledger()
    entries = [
        one if one.instance_id in stopped else until_its_end(one, world.on_demand_usd_hour) for one in ledger
    ]
    for name, spec in given.items():
        mine = [entry for entry in entries if entry.tags[world.tags.job] == name]
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


def run(world: CloudWorld, hours: float, interruptions: int, failures: int, stopped: int) -> None:
    """Rehearse for so long, and check everything: as much of each trouble as named, at least."""
    given, stops = rehearse(world, hours)
    faults = Counter(world.emulator.faults.counts)
    calls = sum(world.emulator.calls.values())
    ran_h = (world.clock.now() - START_S) / HOUR_S
    check(world, given)
    check_bills(world, given)
    print(
        f"\n{ran_h:.0f} h, {len(given)} jobs, {world.passes} passes, {calls} calls, {faults}, {stops} stops"
    )
    assert ran_h >= hours
    assert world.emulator.world.interruptions >= interruptions
    assert stops >= stopped
    assert faults["launch failure"] >= failures
    assert faults["throttled"] > 0
    troubled = {answer: faults[answer] for _, answer, _ in world.troubles}
    assert all(troubled.values()), troubled
    if hours >= 1000:
        struck = sum(troubled.values()) - troubled["lost"] - troubled["empty"] + faults["throttled"]
        assert 0.04 < faults["error"] / (calls - struck) < 0.06


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    ("hours", "troubles_every_h", "interruptions", "failures", "stopped"),
    [
        pytest.param(1000.0, 24.0, 500, 200, 5, marks=pytest.mark.nightly, id="a thousand hours"),
        pytest.param(36.0, 3.0, 6, 6, 0, marks=pytest.mark.real, id="a day and a half"),
    ],
)
def test_chaos(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cloud: str,
    hours: float,
    troubles_every_h: float,
    interruptions: int,
    failures: int,
    stopped: int,
) -> None:
    # No operation is ever forgotten here: looks take several pages, and read no more than they need.
    monkeypatch.setattr(listing, "PAGE", 20)
    world = CLOUDS[cloud]
    emulated = {
        "pools": spells(tmp_path, hours + 100.0, world.zones, world.pool),
        "launch_s": 25.0,
        **world.quotas,
        "faults": {**FAULTS, **world.calls, "spells": troubles(world, hours, troubles_every_h)},
    }
    run(world(tmp_path, emulated, monkeypatch), hours, interruptions, failures, stopped)


DARK_S = HOUR_S
"""After the start one cloud takes back all of its spot capacity, and launches nothing more."""
DATA_GB = 10.0
MOVING_S = 2700.0
"""Spare time: eight offers of the dark cloud refuse, in passes up to a minute apart, and the safety net
gives up spot capacity when a quarter of an hour is left."""
EGRESS_USD_GB = {"aws": 0.09, "gcp": 0.12}
"""What a GB costs that leaves a cloud for the other, by both price lists."""
HOME = {"aws": "us-east-1", "gcp": "us-central1"}
LIT = {"aws": "us-central1", "gcp": "us-east-1"}
"""Where the other cloud's first offer is; all of its offers cost the same."""
REFUSALS = {
    "aws": ("ec2:RunInstances", "InsufficientInstanceCapacity"),
    "gcp": ("compute:instances.create", "ZONE_RESOURCE_POOL_EXHAUSTED"),
}


class TwoClouds(CloudWorld):
    """AWS and Google Cloud. `emulated` names the one that goes dark, which is the cheaper one."""

    zones = (*AwsWorld.zones, *GcpWorld.zones)

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        dark = emulated.pop("dark")
        about = {
            name: {
                **emulated,
                **world.quotas,
                "pools": [{**world.pool, **self._pool(zone, name == dark)} for zone in world.zones],
                "launch_s": 25.0,
                "faults": {"error": 0.05, "lost": 0.01, "spells": self._refusals(name) * (name == dark)},
            }
            for name, world in CLOUDS.items()
        }
        return [
            aws_account(self.clock, about["aws"], AwsWorld.zones),
            gcp_account(self.folder, self.clock, about["gcp"], GcpWorld.zones, 100.0),
        ]

    def _pool(self, zone: str, dark: bool) -> dict[str, Any]:
        price, until = (0.05, DARK_S) if dark else (0.2, 100 * HOUR_S)
        rows = [(0, 1, price), (until, 0, price), (101 * HOUR_S, 0, price)]
        return {"zone": zone, "trace": trace(self.folder, zone, rows)}

    def _refusals(self, name: str) -> list[dict[str, Any]]:
        action, answer = REFUSALS[name]
        return [{"start_s": START_S + DARK_S, "actions": [action], "answer": answer}]

    def set_up(self) -> SchedulerSettings:
        transfers = Transfers().joined(*(account.rents.transfers() for account in self.accounts))
        return replace(SETTINGS, transfers=transfers)


def jobs(home: str) -> dict[str, JobSpec]:
    """Of 2 to 3.5 hours, of which one is done when it goes dark; some could do it again from the start."""
    found = {}
    for n in range(4):
        work_s = (2.0 + n / 2) * HOUR_S
        spare_s = MOVING_S + n % 2 * DARK_S
        found[f"job{n}-1"] = batch(
            f"job{n}",
            work_s=work_s,
            deadline_s=work_s + spare_s,
            profile=Profile(data_region=home, data_gb=DATA_GB),
        )
    return found


@pytest.mark.real
@pytest.mark.parametrize("dark", CLOUDS)
def test_a_cloud_that_refuses_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dark: str) -> None:
    world = TwoClouds(tmp_path, {"dark": dark}, monkeypatch)
    store = world.store
    given = jobs(HOME[dark])
    for spec in given.values():
        world.submit(spec)
    world.go(DARK_S - 300)
    assert {one.offer.provider for one in store.instances.live()} == {dark}
    while store.jobs.live():
        world.go(HOUR_S)
    world.go(HOUR_S)
    now_s = world.clock.now()
    egress_usd = DATA_GB * EGRESS_USD_GB[dark]
    for job_id, spec in given.items():
        job = store.jobs.get(job_id)
        assert job.state is JobState.SUCCEEDED, job.reason
        assert isinstance(spec.work, SparkBatch)
        assert spec.work.deadline_s is not None
        assert job.ended_s is not None
        assert job.ended_s - job.submitted_s <= spec.work.deadline_s, job_id
        (moved,) = [
            one
            for one in store.decisions.latest(100, job_id=job_id)
            if one.chosen is not None and not one.chosen.startswith(dark)
        ]
        (taken,) = [one for one in moved.candidates if one.offer_id == moved.chosen]
        assert f"its data move to {LIT[dark]} for {egress_usd:.4f} USD" in taken.reason
        events = store.events.after(0, 1000, job_id=job_id)
        refused = [one.data["error"] for one in events if one.kind == "instance.refused"]
        assert refused
        assert all(REFUSALS[dark][1] in error for error in refused)
        (event,) = [
            one for one in events if one.kind == "task.decided" and one.decision_id == moved.decision_id
        ]
        assert event.data["egress_usd"] == pytest.approx(egress_usd)
        assert float(usd(store.costs.of_job(job_id, now_s).egress)) == pytest.approx(egress_usd)
    assert world.leaked() == []
    assert wrong_charges(store) == []
    for name, account in zip(("aws", "gcp"), world.accounts, strict=True):
        rented = [one for job_id in given for one in store.instances.of_job(job_id)]
        mine = [bill_of(store, one.instance_id, now_s) for one in rented if one.offer.provider == name]
        assert mine
        assert agree(sum(mine, Bill()), account.emulator.ledger())
