"""The live scheduler on the AWS provider, boto3 and the emulator, in virtual time and one process."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import botocore.endpoint
import pytest
from prometheus_client import CollectorRegistry

from benchmarks.simulated import SimulatedCloud, SimulatedNodes, SimulatedRunner, _Machine
from deploy.billing import CHARGES_PER_USD, Bill
from deploy.emulator.aws.account import group_of, subnet_of
from deploy.emulator.aws.app import App
from deploy.emulator.aws.config import AwsEmulatorConfig, region_of
from deploy.emulator.aws.emulator import AwsEmulator
from deploy.emulator.aws.records import Ec2Instance as Instance
from deploy.emulator.ledger import Entry
from deploy.model.clock import VirtualClock
from deploy.model.instances import InstanceReport, InstanceState
from deploy.providers.aws import names
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import ProviderError
from deploy.providers.calls import Calls
from deploy.scheduler.decide.chooser import Policies
from deploy.scheduler.decide.decider import Decider
from deploy.scheduler.decide.policies import load_market_policy
from deploy.scheduler.loop import Scheduler
from deploy.scheduler.metrics import SchedulerMetrics
from deploy.scheduler.settings import SchedulerSettings
from deploy.store.decisions import Mode
from deploy.store.store import Store
from tests.deploy.emulator.aws.conftest import IMAGE, START_S, trace
from tests.deploy.emulator.aws.transport import in_process
from tests.deploy.scheduler.worlds import World

TYPE = "g4dn.xlarge"
ON_DEMAND = 0.526
REGIONS = ("us-east-1", "us-west-2")
ZONES = ("us-east-1a", "us-east-1b", "us-west-2a", "us-west-2b")
LONGEST_S, SHORTEST_S, BUSY_S = 900.0, 20.0, 60.0
"""Between two passes: at most, at least, and at most while something is to be done; see `pause_s`."""
SETTINGS = SchedulerSettings(
    period_s=LONGEST_S, ask_again_s=60.0, back_off_s=60.0, cool_down_s=120.0, ready_within_s=900.0
)
HOUR_S = 3600


class EmulatedCloud(SimulatedCloud):
    """The simulated runner's view of machines that the emulator's instances are."""

    def __init__(self, clock: VirtualClock, emulator: AwsEmulator) -> None:
        super().__init__(clock, ())
        self.emulator = emulator
        self._looked = 0

    def settle(self) -> None:
        world = self.emulator.world
        with world.lock:
            world.settle()
            fresh = list(world.instances.values())[self._looked :]
        self._looked += len(fresh)
        for instance in fresh:
            name, token = instance.instance_id, instance.tags[names.TOKEN]
            machine = _Machine(_report(instance), instance.launched_s, 1.0)
            self.machines[name] = self._live[name] = machine
            self._by_token[token] = name
            self._by_own_id[token.removeprefix(f"{instance.tags[names.DEPLOYMENT]}-")] = name
        for name, machine in list(self._live.items()):
            machine.report = _report(world.instances[name])
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


def _report(one: Instance) -> InstanceReport:
    ended = one.state in ("shutting-down", "terminated")
    states = {"pending": InstanceState.LAUNCHING, "running": InstanceState.RUNNING}
    return InstanceReport(
        instance_id=one.instance_id,
        client_token=one.tags[names.TOKEN],
        offer_id=one.pool.zone,
        address=one.address,
        node_port=1,
        state=states.get(one.state, InstanceState.TERMINATED),
        launched_s=one.launched_s,
        ended_s=one.ended_s if ended else None,
    )


class AwsWorld(World):
    """A `World` whose cloud is the emulator, behind the real provider."""

    def __init__(self, folder: Path, emulated: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock(START_S)
        # One region after the other, so that all runs are the same; nothing hangs in virtual time.
        monkeypatch.setattr(Calls, "each", _in_turn)
        # The SDK's pauses between its attempts pass too.
        monkeypatch.setattr(botocore.endpoint.time, "sleep", self.clock.sleep)
        # Their jitter, and the names that the scheduler orders instances by, are the same in every run.
        random.seed(1)
        names_rng = random.Random(2)
        monkeypatch.setattr(secrets, "token_hex", lambda n_bytes: names_rng.randbytes(n_bytes).hex())
        config = AwsEmulatorConfig.model_validate(
            {"clock": "virtual", "images": [{"image_id": IMAGE}], "folder": folder, **emulated}
        )
        self.emulator = AwsEmulator(config, self.clock)
        self.session = in_process(App(self.emulator))
        self.cloud = self.emulated = EmulatedCloud(self.clock, self.emulator)
        self.url = f"sqlite:///{folder / 'store.db'}"
        self.policy, self.mode, self.settings = "cheapest", Mode.ACT, SETTINGS
        self.passes = 0
        self.folder = folder
        self._opened: Store | None = None
        self.config = AwsConfig.model_validate(
            {
                "regions": {
                    region: {
                        "image": IMAGE,
                        "security_group": group_of(region),
                        "subnets": {zone: subnet_of(zone) for zone in ZONES if region_of(zone) == region},
                    }
                    for region in REGIONS
                },
                "instance_types": {TYPE: {"quota": 20}},
                "node": {"scheduler_url": "https://scheduler.example:8443"},
                "prices_every_s": 300.0,
                "launch_s": 30.0,
            }
        )
        self.restart()

    def restart(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self.store = self._opened = Store.open(self.url, self.clock.now(), durable=False)
        self.aws = AwsProvider(self.config, self.session, self.clock.now)
        runner = SimulatedRunner(self.cloud)
        n_offers = 2 * len(ZONES)
        market = load_market_policy(self.policy, n_offers)
        self.scheduler = Scheduler(
            self.store,
            {"aws": self.aws},
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
        for at_s in (self.emulator.world.next_s(), self.emulated.done_s()):
            if at_s is not None:
                moments.append(at_s)
        return max(SHORTEST_S, min(moments) - now_s)

    def _notice(self) -> None:
        """What the node agents read in the metadata service, they tell the scheduler."""
        now_s = self.clock.now()
        for one in self.emulator.world.living():
            fate = one.fate
            if fate.notice_s is None or fate.notice_s > now_s or one.state != "running":
                continue
            known = self.store.instances.by_client_token(one.tags[names.TOKEN])
            if known is not None and known.notice_s is None:
                with self.store.transaction():
                    self.store.instances.noticed(known.instance_id, fate.kill_s)

    def stop_one(self) -> bool:
        """A person stops an instance that runs, behind the scheduler's back. False if there is none.

        EC2 stops only those that are on demand, or of a persistent request, which ours are not.
        """
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
        return self.emulator.world.living()


def spells(
    folder: Path, seed: int, hours: float, up_s: float = 18_000, down_s: float = 3_000
) -> list[dict[str, Any]]:
    """Four pools whose capacity ends again and again, and whose prices move meanwhile."""
    rng = random.Random(seed)
    pools = []
    for k, zone in enumerate(ZONES):
        rows, at_s, up = [], 0, 1
        while at_s < hours * HOUR_S:
            end_s = at_s + 300 + int(rng.expovariate(1 / (up_s if up else down_s)))
            while at_s < end_s:
                price = round(0.15 + 0.01 * k + 0.06 * rng.random(), 4)
                rows.append((at_s, up, price))
                at_s += 60 + int(rng.expovariate(1 / 7200))
            at_s, up = end_s, 1 - up
        rows.append((at_s, up, 0.2))
        pools.append(
            {
                "zone": zone,
                "instance_type": TYPE,
                "trace": trace(folder, zone, rows),
                "on_demand_usd_hour": ON_DEMAND,
            }
        )
    return pools


TROUBLES: tuple[tuple[str, str, float], ...] = (
    ("ec2:DescribeInstances", "empty", 0.7),
    ("ec2:*", "Unavailable", 0.7),
    ("ec2:*", "RequestLimitExceeded", 0.2),
    ("ec2:RunInstances", "lost", 0.5),
    ("ec2:RunInstances", "ACodeThatIsNew", 1.5),
    ("ec2:RunInstances", "InsufficientInstanceCapacity", 4.0),
    ("ec2:TerminateInstances", "ACodeThatIsNew", 0.5),
    ("ec2:Describe*", "UnauthorizedOperation", 0.7),
    ("ec2:TerminateInstances", "lost", 0.5),
)
"""What goes wrong for this many hours each time: actions, answer, hours.

EC2 shows what ended for an hour only: of what ended unseen before that nobody knows when it did, and it is
billed until it is missed. So nothing is hidden for longer than an hour, less the longest pause between two
looks.
"""


def troubles(start_s: float, hours: float, every_h: float) -> list[dict[str, Any]]:
    """One after the other, in one region, in the other, and in both."""
    found = []
    for k in range(int(hours / every_h)):
        actions, answer, lasts_h = TROUBLES[k % len(TROUBLES)]
        at_s = start_s + (k + 0.5) * every_h * HOUR_S
        where = ((REGIONS[0],), (REGIONS[1],), ())[k // len(TROUBLES) % 3]
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
