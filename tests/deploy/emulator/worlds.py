"""The live scheduler in emulated clouds, behind their real providers and clients: in virtual time."""

from __future__ import annotations

import random
import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from benchmarks.simulated import SimulatedCloud, _Machine
from spotweave.deploy.billing import CHARGES_PER_USD, Bill
from spotweave.deploy.emulator.aws.emulator import AwsEmulator
from spotweave.deploy.emulator.aws.wire import AwsEmulatorConfig
from spotweave.deploy.emulator.gcp.emulator import GcpEmulator
from spotweave.deploy.emulator.gcp.world import GcpEmulatorConfig
from spotweave.deploy.emulator.ledger import Entry
from spotweave.deploy.emulator.server import Emulator
from spotweave.deploy.emulator.world import Instance
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.instances import InstanceReport, InstanceState
from spotweave.deploy.providers.aws import config as aws_names
from spotweave.deploy.providers.aws.provider import AwsProvider
from spotweave.deploy.providers.base import Provider, ProviderError
from spotweave.deploy.providers.cloud import Calls
from spotweave.deploy.providers.config import ProviderConfig
from spotweave.deploy.providers.gcp import config as names
from spotweave.deploy.providers.gcp.config import GcpConfig
from spotweave.deploy.providers.gcp.provider import GcpProvider
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.intents import Mode
from spotweave.deploy.store.store import Store
from spotweave.envs.traces.importers import region_of
from tests.deploy.emulator.aws.conftest import IMAGE as AWS_IMAGE
from tests.deploy.emulator.aws.conftest import region, renting
from tests.deploy.emulator.transport import START_S, InProcess, in_process
from tests.deploy.providers.gcp.project import IMAGE, PROJECT, TYPE, prices
from tests.deploy.scheduler.worlds import World

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
    for where, ask in asks.items():
        try:
            answers[where] = ask()
        except ProviderError as error:
            errors[where] = error
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
        self.acting, self.watched, self.mode, self.settings = "cheapest", None, Mode.ACT, self.set_up()
        self.passes = 0
        self._opened: Store | None = None
        self.restart()

    def set_up(self) -> SchedulerSettings:
        return SETTINGS

    @abstractmethod
    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        """Make the emulators."""

    @property
    def emulator(self) -> Emulator:
        """Of the only cloud."""
        (account,) = self.accounts
        return account.emulator

    def rents(self) -> dict[str, Provider]:
        self.rented = {provider.name: provider for provider in (one.open() for one in self.accounts)}
        return self.rented

    def n_offers(self) -> int:
        return 2 * len(self.zones)

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


def agree(bill: Bill, entries: Sequence[Entry]) -> bool:
    """Whether a bill is that of a ledger: instances exactly; disks but for what is rounded of each day."""
    unit = CHARGES_PER_USD // 1_000_000
    instances = sum((Fraction(one.micro_usd) for one in entries), Fraction(0)) * unit
    disks = sum((Fraction(one.disk_micro_usd) for one in entries), Fraction(0)) * unit
    days = sum(2 + (one.ended_s or one.launched_s) // 86_400 - one.launched_s // 86_400 for one in entries)
    return bill.instance == instances and abs(bill.disk - disks) <= days


ON_DEMAND_USD = 0.526
NODE = {"scheduler_url": "https://scheduler.example:8443"}


def aws_account(clock: VirtualClock, emulated: dict[str, Any], zones: Sequence[str]) -> Account:
    """An emulated AWS, in all of whose zones one type is rented."""
    config = AwsEmulatorConfig.model_validate({"images": [{"image_id": AWS_IMAGE}], **emulated})
    emulator = AwsEmulator(config, clock)
    session = in_process(emulator)
    rents = renting(
        regions={name: region(name, zones) for name in map(region_of, zones)},
        instance_types={AwsWorld.kind: {"quota": 20}},
        prices_every_s=300.0,
        launch_s=30.0,
    )
    return Account(emulator, rents, lambda: AwsProvider(rents, session, clock.now), AwsWorld.tags)


def gcp_account(
    folder: Path, clock: VirtualClock, emulated: dict[str, Any], zones: Sequence[str], hours: float
) -> Account:
    """An emulated Google Cloud, in all of whose zones one type is rented, and its prices for so long."""
    emulator = GcpEmulator(GcpEmulatorConfig.model_validate(emulated), clock)
    market = emulator.world.market
    # What Google publishes: every price, and since when.
    spot = {
        pool.zone: list(market.prices(pool, START_S, START_S + hours * HOUR_S))
        for pool in market.pools.values()
    }
    regions = {
        region: {"zones": [zone for zone in zones if region_of(zone) == region]}
        for region in map(region_of, zones)
    }
    rents = GcpConfig.model_validate(
        {
            "project": PROJECT,
            "regions": regions,
            "instance_types": {GcpWorld.kind: {"quota": 20}},
            "image": IMAGE,
            "node": NODE,
            "prices_file": str(prices(folder, spot, {TYPE: 4}, ON_DEMAND_USD)),
            "launch_s": 30.0,
        }
    )
    return Account(emulator, rents, lambda: GcpProvider(rents, InProcess(emulator), clock.now), GcpWorld.tags)


class OneCloud(CloudWorld):
    """A world of one of the clouds.

    Attributes:
        kind: the type that is rented.
        pool: what all of its pools have in common.
        quotas: of the account, more than enough.
        calls: limits of the interface.
        shutdown_paid_s: how long one that was stopped is paid for still.
        disk_usd_gib_month: of its disks.
    """

    kind: ClassVar[str]
    pool: ClassVar[Mapping[str, Any]]
    quotas: ClassVar[Mapping[str, Any]]
    calls: ClassVar[Mapping[str, Any]]
    shutdown_paid_s: ClassVar[float] = 0.0
    disk_usd_gib_month: ClassVar[float] = 0.08
    on_demand_usd_hour = ON_DEMAND_USD

    @classmethod
    def steady(cls) -> dict[str, Any]:
        """An emulator in which capacity never ends and the price stays."""
        pools = [{**cls.pool, "zone": zone, "spot_usd_hour": 0.2} for zone in cls.zones]
        return {"pools": pools, "launch_s": 25.0}


class AwsWorld(OneCloud):
    """EC2 shows what ended for an hour only.

    Of what ended unseen before that nobody knows when it did, and it is billed until it is missed. So nothing
    is hidden for longer than an hour, less the longest pause between two looks.
    """

    kind = "g4dn.xlarge"
    pool: ClassVar[Mapping[str, Any]] = {"instance_type": kind, "on_demand_usd_hour": ON_DEMAND_USD}
    quotas: ClassVar[Mapping[str, Any]] = {"spot_quota": {"g": 400}, "on_demand_quota": {"g": 400}}
    calls: ClassVar[Mapping[str, Any]] = {"launch_death": 0.02}
    tags = Tags(aws_names.TOKEN, aws_names.DEPLOYMENT, aws_names.JOB)
    zones = ("us-east-1a", "us-east-1b", "us-west-2a", "us-west-2b")
    regions = ("us-east-1", "us-west-2")
    troubles = (
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

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        return [aws_account(self.clock, emulated, self.zones)]


class GcpWorld(OneCloud):
    """What ended is told by its operations, of any age."""

    kind = TYPE
    pool: ClassVar[Mapping[str, Any]] = {
        "instance_type": kind,
        "n_vcpus": 4,
        "on_demand_usd_hour": ON_DEMAND_USD,
    }
    quotas: ClassVar[Mapping[str, Any]] = {"quota_vcpus": 400}
    shutdown_paid_s = 5.0
    disk_usd_gib_month = 0.1
    # Compute Engine allows some tens of calls a second. Where a region is dark, each zone is a call.
    calls: ClassVar[Mapping[str, Any]] = {"calls_per_s": 0.4, "burst": 12}
    tags = Tags(names.TOKEN, names.DEPLOYMENT, names.JOB)
    zones = ("us-central1-a", "us-central1-b", "us-west1-a", "us-west1-b")
    regions = ("us-central1", "us-west1")
    troubles = (
        ("compute:instances.list", "empty", 0.7),
        ("compute:*", "backendError", 0.7),
        ("compute:*", "rateLimitExceeded", 0.2),
        ("compute:instances.create", "lost", 0.5),
        ("compute:instances.create", "ACodeThatIsNew", 1.5),
        ("compute:instances.create", "ZONE_RESOURCE_POOL_EXHAUSTED", 4.0),
        ("compute:instances.delete", "ACodeThatIsNew", 0.5),
        ("compute:*.list", "forbidden", 0.7),
        ("compute:instances.delete", "lost", 0.5),
    )

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        return [gcp_account(self.folder, self.clock, emulated, self.zones, 1200.0)]


CLOUDS: dict[str, type[OneCloud]] = {"aws": AwsWorld, "gcp": GcpWorld}
