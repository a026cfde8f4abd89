"""The live scheduler on clouds' providers, their clients and emulators, in virtual time and one process."""

from __future__ import annotations

import random
import secrets
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from benchmarks.simulated import SimulatedCloud, SimulatedNodes, SimulatedRunner, _Machine
from deploy.billing import CHARGES_PER_USD, Bill, usd
from deploy.cli.clouds import unneeded
from deploy.emulator.emulator import Emulator
from deploy.emulator.faults import FaultConfig
from deploy.emulator.ledger import Entry, total_usd
from deploy.emulator.world import Instance
from deploy.model.clock import VirtualClock
from deploy.model.instances import InstanceReport, InstanceState
from deploy.model.jobs import JobSpec, JobState, Places
from deploy.providers.base import Provider, ProviderError
from deploy.providers.calls import Calls
from deploy.providers.config import ProviderConfig
from deploy.scheduler.decide.chooser import Policies
from deploy.scheduler.decide.decider import Decider
from deploy.scheduler.decide.policies import load_market_policy
from deploy.scheduler.loop import Scheduler
from deploy.scheduler.metrics import SchedulerMetrics
from deploy.scheduler.settings import SchedulerSettings
from deploy.store.decisions import Mode
from deploy.store.store import Store
from tests.deploy.bills import wrong_charges
from tests.deploy.emulator.traces import START_S, trace
from tests.deploy.scheduler.worlds import World, batch

LONGEST_S, SHORTEST_S, BUSY_S = 900.0, 20.0, 60.0
"""Between two passes: at most, at least, and at most while something is to be done; see `pause_s`."""
SETTINGS = SchedulerSettings(
    period_s=LONGEST_S, ask_again_s=60.0, back_off_s=60.0, cool_down_s=120.0, ready_within_s=900.0
)
HOUR_S = 3600


class Tags(NamedTuple):
    """Under which a provider keeps what an instance is for."""

    token: str
    deployment: str
    job: str


class Account(NamedTuple):
    """An emulated cloud, and how it is rented from.

    Attributes:
        rents: the provider's configuration.
        open: a provider that knows nothing from memory.
    """

    emulator: Emulator
    rents: ProviderConfig
    open: Callable[[], Provider]
    tags: Tags

    def living(self) -> Sequence[Instance]:
        """What is rented now."""
        return self.emulator.world.living()


class EmulatedCloud(SimulatedCloud):
    """The simulated runner's view of machines that the emulators' instances are."""

    def __init__(self, clock: VirtualClock, accounts: Sequence[Account]) -> None:
        super().__init__(clock, ())
        self.accounts = accounts
        self._looked = [0] * len(accounts)
        self._of: dict[str, tuple[Instance, Tags]] = {}

    def settle(self) -> None:
        for k, account in enumerate(self.accounts):
            world, tags = account.emulator.world, account.tags
            with world.lock:
                world.settle()
                fresh = list(world.instances.values())[self._looked[k] :]
            self._looked[k] += len(fresh)
            for instance in fresh:
                name, token = instance.instance_id, instance.tags[tags.token]
                machine = _Machine(_report(instance, tags), instance.launched_s, 1.0)
                self.machines[name] = self._live[name] = machine
                self._of[name] = instance, tags
                self._by_token[token] = name
                self._by_own_id[token.removeprefix(f"{instance.tags[tags.deployment]}-")] = name
        for name, machine in list(self._live.items()):
            machine.report = _report(*self._of[name])
            if machine.report.state is InstanceState.TERMINATED:
                del self._live[name]
        for work in list(self._active.values()):
            self._settle_work(work, self.clock.now())

    def done_s(self) -> float | None:
        """When the next attempt comes to its end, if nothing happens to it."""
        ends = [work.began_s + (1.0 - work.saved_before) / work.share_per_s for work in self._active.values()]
        return min(ends, default=None)


def _in_turn(
    self: Calls, kind: str, within_s: float, asks: Mapping[str, Callable[[], Any]]
) -> tuple[dict[str, Any], dict[str, ProviderError]]:
    answers: dict[str, Any] = {}
    errors: dict[str, ProviderError] = {}
    for region, ask in asks.items():
        try:
            answers[region] = ask()
        except ProviderError as error:
            errors[region] = error
    return answers, errors


def _report(one: Instance, tags: Tags) -> InstanceReport:
    ended = one.state in ("shutting-down", "terminated")
    states = {"pending": InstanceState.LAUNCHING, "running": InstanceState.RUNNING}
    return InstanceReport(
        instance_id=one.instance_id,
        client_token=one.tags[tags.token],
        offer_id=one.pool.zone,
        address=one.address,
        node_port=1,
        state=states.get(one.state, InstanceState.TERMINATED),
        launched_s=one.launched_s,
        ended_s=one.ended_s if ended else None,
    )


class CloudWorld(World):
    """A `World` whose cloud is an emulator, or several, behind their real providers.

    Attributes:
        tags: of the provider.
        zones: in which it rents.
        on_demand_usd_hour: of the one type that it rents.
        regions: of the zones.
        troubles: actions, answer and hours of what goes wrong for a while each time.
    """

    tags: Tags
    zones: Sequence[str]
    regions: Sequence[str]
    on_demand_usd_hour: float
    troubles: Sequence[tuple[str, str, float]] = ()

    def __init__(self, folder: Path, emulated: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock(START_S)
        # One region after the other, so that all runs are the same; nothing hangs in virtual time.
        monkeypatch.setattr(Calls, "each", _in_turn)
        # The clients' pauses between their attempts pass too, and count against the time that they try for.
        monkeypatch.setattr(time, "sleep", self.clock.sleep)
        monkeypatch.setattr(time, "monotonic", self.clock.now)
        # Their jitter, and the names that the scheduler orders instances by, are the same in every run.
        random.seed(1)
        names_rng = random.Random(2)
        monkeypatch.setattr(secrets, "token_hex", lambda n_bytes: names_rng.randbytes(n_bytes).hex())
        self.folder = folder
        self.accounts = self.emulate({"clock": "virtual", "folder": folder, **emulated})
        self.cloud = self.emulated = EmulatedCloud(self.clock, self.accounts)
        self.url = f"sqlite:///{folder / 'store.db'}"
        self.policy, self.mode, self.settings = "cheapest", Mode.ACT, self.set_up()
        self.passes = 0
        self._opened: Store | None = None
        self.restart()

    def set_up(self) -> SchedulerSettings:
        """Of the scheduler."""
        return SETTINGS

    @abstractmethod
    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        """Make the emulators."""

    @property
    def emulator(self) -> Emulator:
        """Of the only cloud."""
        (account,) = self.accounts
        return account.emulator

    def restart(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self.store = self._opened = Store.open(self.url, self.clock.now(), durable=False)
        self.rented = {provider.name: provider for provider in (one.open() for one in self.accounts)}
        runner = SimulatedRunner(self.cloud)
        n_offers = 2 * len(self.zones)
        market = load_market_policy(self.policy, n_offers)
        self.scheduler = Scheduler(
            self.store,
            self.rented,
            [runner],
            Policies(Decider(market.policy, components=market.components), self.mode),
            self.clock,
            SimulatedNodes(self.cloud),
            self.settings,
            SchedulerMetrics(CollectorRegistry()),
        )

    def go(self, seconds: float) -> None:
        end_s = self.clock.now() + seconds
        while self.clock.now() < end_s:
            self._notice()
            self.scheduler.step()
            self.passes += 1
            self.clock.sleep(min(self.pause_s(), end_s - self.clock.now()))

    def pause_s(self) -> float:
        """Until the next pass: until something happens, or may be done.

        A live loop looks every 5 s. Until the emulator, or a task, does something by itself, all those looks
        would see the same world; what a scheduler does by the time alone, it does within its `period_s`
        (budgets are computed for that), and what waits to be tried again is tried every minute.
        """
        now_s = self.clock.now()
        tasks = [task for job in self.store.jobs.live() for task in self.store.tasks.of_job(job.job_id)]
        busy = self.store.intents.pending() or any(not task.instances for task in tasks)
        moments = [now_s + (BUSY_S if busy else LONGEST_S)]
        for at_s in (*(one.emulator.world.next_s() for one in self.accounts), self.emulated.done_s()):
            if at_s is not None:
                moments.append(at_s)
        return max(SHORTEST_S, min(moments) - now_s)

    def _notice(self) -> None:
        """What the node agents read in the metadata service, they tell the scheduler."""
        now_s = self.clock.now()
        for one, tags in ((one, account.tags) for account in self.accounts for one in account.living()):
            fate = one.fate
            if fate.notice_s is None or fate.notice_s > now_s or one.state != "running":
                continue
            known = self.store.instances.by_client_token(one.tags[tags.token])
            if known is not None and known.notice_s is None:
                with self.store.transaction():
                    self.store.instances.noticed(known.instance_id, fate.kill_s)

    def stop_one(self) -> bool:
        """A person stops an instance on demand, behind the scheduler's back. False if there is none."""
        world = self.emulator.world
        with world.lock:
            world.settle()
            for one in world.living():
                if one.state == "running" and not one.spot:
                    world.stop(one)
                    return True
        return False

    def leaked(self) -> Sequence[Instance]:
        """What runs although no job needs it."""
        return [one for account in self.accounts for one in account.living()]


def spells(
    folder: Path,
    seed: int,
    hours: float,
    zones: Sequence[str],
    pool: Mapping[str, Any],
    up_s: float = 18_000,
    down_s: float = 3_000,
) -> list[dict[str, Any]]:
    """Pools whose capacity ends again and again, and whose prices move meanwhile."""
    rng = random.Random(seed)
    pools = []
    for k, zone in enumerate(zones):
        rows, at_s, up = [], 0, 1
        while at_s < hours * HOUR_S:
            end_s = at_s + 300 + int(rng.expovariate(1 / (up_s if up else down_s)))
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
        found.append(
            {
                "start_s": at_s,
                "end_s": at_s + lasts_h * HOUR_S,
                "actions": [actions],
                "regions": where,
                "answer": answer,
            }
        )
    return found


def charges(entries: Iterable[Entry]) -> tuple[Fraction, Fraction]:
    """Of a ledger, in the store's unit, exact: instances, disks."""
    listed = list(entries)
    parts = ([one.micro_usd for one in listed], [one.disk_micro_usd for one in listed])
    unit = CHARGES_PER_USD // 1_000_000
    instances, disks = (sum(map(Fraction, part), Fraction(0)) * unit for part in parts)
    return instances, disks


def agree(bill: Bill, entries: Sequence[Entry]) -> bool:
    """Whether a bill is that of a ledger: instances exactly; disks but for what is rounded of each day."""
    instances, disks = charges(entries)
    days = sum(2 + (one.ended_s or one.launched_s) // 86_400 - one.launched_s // 86_400 for one in entries)
    return bill.instance == instances and abs(bill.disk - disks) <= days


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
    troubled = {answer: faults[answer] for _, answer, _ in world.troubles}
    assert all(troubled.values()), troubled
    if hours >= 1000:
        struck = sum(troubled.values()) - troubled["lost"] - troubled["empty"] + faults["throttled"]
        assert 0.04 < faults["error"] / (calls - struck) < 0.06
