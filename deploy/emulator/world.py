"""An emulated account: its instances, and what time does to them, in any cloud."""

from __future__ import annotations

import heapq
import math
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Literal, TypeVar

from spotweave.deploy.emulator.config import EmulatorConfig, Failure, Faults, PoolConfig
from spotweave.deploy.emulator.machines import Machines, Processes
from spotweave.deploy.model.clock import Clock, SystemClock, VirtualClock
from spotweave.deploy.providers.local.records import Fate
from spotweave.deploy.providers.local.traces import RecordedMarket, constant, load_recording
from spotweave.deploy.yamlfile import ConfigError
from spotweave.envs.traces.storage import TraceError

Behaviour = Literal["terminate", "stop"]


@dataclass
class Stretch:
    """A time that is paid for, in whole epoch seconds; `end_s` is None while it lasts."""

    start_s: float
    end_s: float | None = None
    by_provider: bool = False


@dataclass
class Volume:
    """A disk. It exists from its instance's launch on."""

    volume_id: str
    size_gib: int
    delete_on_termination: bool
    created_s: float
    deleted_s: float | None = None


@dataclass(kw_only=True)
class Instance:
    """An instance."""

    cloud: ClassVar[str]
    instance_id: str
    region: str
    pool: Pool
    spot: bool
    client_token: str
    address: str
    user_data: bytes
    tags: dict[str, str]
    launched_s: float  # of the latest start, as described
    first_seen_s: float  # before, it is not described
    volumes: list[Volume]
    max_usd_hour: float = 0.0  # spot: above this price it is taken away
    behaviour: Behaviour = "terminate"
    # "pending", "running", "shutting-down" and "terminated", or "stopping" and "stopped"
    state: str = "pending"
    stretches: list[Stretch] = field(default_factory=list)  # what is paid for
    fate: Fate = field(default_factory=Fate)
    generation: int = 0  # changes whenever what was planned for it is void
    dies: bool = False  # it ends instead of running
    ended_s: float | None = None
    running_s: float | None = None

    @property
    def occupies(self) -> bool:
        """Whether the instance takes capacity and quota."""
        return self.state in ("pending", "running")

    @property
    def metadata(self) -> dict[str, str]:
        """What its metadata service tells besides its end, by path."""
        return {}


InstanceT = TypeVar("InstanceT", bound=Instance)
_Act = Callable[[InstanceT, float], None]


class World(Generic[InstanceT]):
    """Not for several threads: hold `lock`, then `settle`, then look or act.

    A cloud adds what it does besides by the methods that begin with `_on_`. Raises ConfigError if a recording
    or the state folder cannot be used.
    """

    def __init__(self, config: EmulatorConfig, clock: Clock | None, failure: Failure) -> None:
        if clock is None:
            clock = SystemClock() if config.clock == "real" else VirtualClock(config.start_s)
        self.clock, self.market = clock, Market(config, clock.now())
        self.machines = Processes(config) if config.machines == "processes" else Machines()
        self.lock = threading.RLock()
        spells = tuple(one.dated(clock.now()) for one in config.faults.spells)
        faults = config.faults.model_copy(update={"spells": spells})
        self.faults = Faults(faults, config.seed, failure)
        self.instances: dict[str, InstanceT] = {}  # all that ever were, in the order of their launch
        self.interruptions = 0  # instances taken away by the market so far
        self._times = config
        self._living: dict[str, InstanceT] = {}
        # No id comes twice, also not after another start; in virtual time runs repeat exactly.
        self.random = random.Random(f"ids {config.seed} {clock.now()}")
        self._due: list[tuple[float, int, InstanceT, int, _Act[InstanceT]]] = []
        self._planned = 0

    def now_s(self) -> float:
        """Whole epoch seconds: what clouds show has no finer time here."""
        return math.floor(self.clock.now())

    def living(self) -> list[InstanceT]:
        """All that are not terminated."""
        return list(self._living.values())

    def used(self, pool: Pool, *, spot: bool) -> int:
        """Instances that take its capacity."""
        return sum(one.occupies and one.pool is pool and one.spot is spot for one in self._living.values())

    def add(self, instance: InstanceT) -> None:
        """Launch it now."""
        self.instances[instance.instance_id] = self._living[instance.instance_id] = instance
        self.begin(instance, instance.launched_s)

    def settle(self) -> None:
        """Do what was planned until now, in the order of time."""
        now_s = self.clock.now()
        while self._due and self._due[0][0] <= now_s:
            at_s, _, instance, generation, act = heapq.heappop(self._due)
            if instance.generation == generation:
                act(instance, at_s)

    def next_s(self) -> float | None:
        """When something happens next; None: nothing will by itself."""
        while self._due and self._due[0][2].generation != self._due[0][3]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def terminate(self, instance: InstanceT) -> None:
        """The user ends it."""
        if instance.state in ("shutting-down", "terminated"):
            return
        self._end(instance, self.now_s(), "terminated", by_provider=False)

    def stop(self, instance: InstanceT) -> None:
        """The user stops it."""
        if instance.state in ("stopping", "stopped"):
            return
        self._end(instance, self.now_s(), "stopped", by_provider=False)

    def start(self, instance: InstanceT) -> None:
        """The user starts it again."""
        self.void(instance)
        instance.launched_s = self.now_s()
        self.begin(instance, instance.launched_s)

    def interrupt(self, instance: InstanceT, notice_s: float) -> None:
        """Take it away as the market would, after this many seconds."""
        now_s = self.now_s()
        advice_s = self._advice_s(now_s, now_s)
        self._foretell(instance, Fate(rebalance_s=advice_s, notice_s=now_s, kill_s=now_s + notice_s))
        self.settle()

    def plan(self, instance: InstanceT, at_s: float, act: _Act[InstanceT]) -> None:
        """Do something with it then, unless it is void before."""
        self._planned += 1
        heapq.heappush(self._due, (at_s, self._planned, instance, instance.generation, act))

    def void(self, instance: InstanceT) -> None:
        """Forget what was planned for it."""
        instance.generation += 1

    def begin(self, instance: InstanceT, at_s: float) -> None:
        """Start billing an instance, which will run soon."""
        instance.stretches.append(Stretch(at_s))
        self._on_begin(instance, at_s)
        self.turn(instance, "pending", at_s)
        self.plan(instance, at_s + self._times.launch_s, self._run)
        if instance.spot:
            self._foretell(instance, self._fate(instance, at_s))

    def turn(self, instance: InstanceT, state: str, at_s: float) -> None:
        """Move an instance to another state."""
        instance.state = state
        self._on_turn(instance, at_s)

    # What a cloud does besides.

    def _advice_s(self, begun_s: float, notice_s: float) -> float | None:
        """When it advises to leave an instance that gets notice then; None: it does not."""
        return None

    def _paid_until_s(self, at_s: float) -> float:
        """When the meter of what ends now stops."""
        return at_s

    def _on_begin(self, instance: InstanceT, at_s: float) -> None:
        """Called when an instance starts, perhaps once more."""

    def _on_turn(self, instance: InstanceT, at_s: float) -> None:
        """Called when an instance has changed its state."""

    def _on_advice(self, instance: InstanceT, at_s: float) -> None:
        """Called when the provider advises to leave an instance."""

    def _on_notice(self, instance: InstanceT, at_s: float) -> None:
        """Called when an interruption is announced."""

    def _on_death(self, instance: InstanceT, at_s: float) -> None:
        """Called when an instance was launched and will never run."""

    def _on_end(self, instance: InstanceT, at_s: float, final: str, *, by_provider: bool) -> None:
        """Called when an instance begins to terminate or stop."""

    # What the market does.

    def _fate(self, instance: InstanceT, at_s: float) -> Fate:
        end_s = self.market.ends_s(instance.pool, at_s, instance.max_usd_hour)
        if end_s is None:
            return Fate()
        kill_s = float(math.floor(end_s))
        if self.faults.strikes("notice missed", self.faults.config.notice_missed):
            return Fate(kill_s=kill_s)
        notice_s = max(at_s, kill_s - self._times.notice_s)
        return Fate(rebalance_s=self._advice_s(at_s, notice_s), notice_s=notice_s, kill_s=kill_s)

    def _foretell(self, instance: InstanceT, fate: Fate) -> None:
        instance.fate = fate
        for at_s, act in (
            (fate.rebalance_s, self._on_advice),
            (fate.notice_s, self._on_notice),
            (fate.kill_s, self._take),
        ):
            if at_s is not None:
                self.plan(instance, at_s, act)
        self.machines.fate(instance)

    def _run(self, instance: InstanceT, at_s: float) -> None:
        if instance.dies:
            # Nobody pays for what never ran.
            instance.stretches.pop()
            self._on_death(instance, at_s)
            self._finish(instance, at_s)
            return
        instance.running_s = at_s
        self.turn(instance, "running", at_s)
        self.machines.start(instance)

    def _take(self, instance: InstanceT, at_s: float) -> None:
        self.interruptions += 1
        final = "terminated" if instance.behaviour == "terminate" else "stopped"
        self._end(instance, at_s, final, by_provider=True)

    def _end(self, instance: InstanceT, at_s: float, final: str, *, by_provider: bool) -> None:
        """Stop paying for it; what runs of it ends."""
        was, paid_until_s = instance.state, self._paid_until_s(at_s)
        self.void(instance)
        instance.fate = Fate()
        if was in ("pending", "running"):
            stretch = instance.stretches[-1]
            stretch.end_s, stretch.by_provider = paid_until_s, by_provider
            self.machines.stop(instance)
        if final == "terminated":
            instance.ended_s = paid_until_s
        self._on_end(instance, at_s, final, by_provider=by_provider)
        self.turn(instance, "shutting-down" if final == "terminated" else "stopping", at_s)
        done = self._finish if final == "terminated" else self._stopped
        self.plan(instance, at_s + self._times.shutdown_s, done)
        if final == "terminated":
            _release(instance, paid_until_s)

    def _stopped(self, instance: InstanceT, at_s: float) -> None:
        self.turn(instance, "stopped", at_s)

    def _finish(self, instance: InstanceT, at_s: float) -> None:
        self.void(instance)
        if instance.ended_s is None:
            instance.ended_s = at_s
            _release(instance, at_s)
        self._living.pop(instance.instance_id, None)
        self.turn(instance, "terminated", at_s)


def _release(instance: Instance, at_s: float) -> None:
    for volume in instance.volumes:
        if volume.delete_on_termination:
            volume.deleted_s = at_s


# Prices and capacity: one pool for each instance type in each zone, driven by its recording.


@dataclass
class Pool:
    """The capacity of one instance type in one zone; the control interface changes it."""

    region: str
    zone: str
    instance_type: str
    vcpus: int
    on_demand_usd_hour: float
    recording: RecordedMarket
    spot_capacity: int
    on_demand_capacity: int


class Market:
    """All pools, in the time of the emulator's clock. Raises ConfigError if a recording cannot be used."""

    def __init__(self, config: EmulatorConfig, origin_s: float) -> None:
        self._origin_s = origin_s
        self._start_s, self._factor = config.trace_start_s, config.time_factor
        self.pools: dict[tuple[str, str], Pool] = {}
        for given in config.pools:
            self.pools[given.zone, given.instance_type] = Pool(
                given.region,
                given.zone,
                given.instance_type,
                given.vcpus,
                given.on_demand_usd_hour,
                _recording(config, given),
                given.spot_capacity,
                given.on_demand_capacity,
            )

    def find(self, zone: str, instance_type: str) -> Pool | None:
        """The pool, if there is one."""
        return self.pools.get((zone, instance_type))

    def of_region(self, region: str) -> list[Pool]:
        """Pools of a region, in the order of the configuration."""
        return [pool for pool in self.pools.values() if pool.region == region]

    def has_spot(self, pool: Pool, now_s: float) -> bool:
        """Whether the recording has capacity."""
        return pool.spot_capacity > 0 and pool.recording.available(self._position_s(now_s))

    def price(self, pool: Pool, now_s: float) -> float:
        """The spot price in USD per hour."""
        return pool.recording.price_usd_hour(self._position_s(now_s))

    def ends_s(self, pool: Pool, now_s: float, max_usd_hour: float) -> float | None:
        """When an instance that runs now is taken away; None: never."""
        at = self._position_s(now_s)
        end = pool.recording.ends_s(at, max_usd_hour)
        return None if end is None else now_s + (end - at) / self._factor

    def up_ratio(self, pool: Pool, now_s: float) -> float:
        """Share of the latest recorded day with capacity."""
        return pool.recording.history(self._position_s(now_s)).up_ratio

    def prices(self, pool: Pool, since_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        """(epoch seconds, USD per hour) of each change of the price, after the one in force at the start."""
        recording = pool.recording
        row, end = recording.row(max(0.0, self._position_s(since_s))), self._position_s(until_s)
        latest: float | None = None
        while (at := recording.begins_s(row)) <= end:
            price = recording.prices[row % len(recording.prices)]
            if price != latest:
                latest = price
                yield self._time_s(at), price
            row += 1

    def _position_s(self, now_s: float) -> float:
        return self._start_s + (now_s - self._origin_s) * self._factor

    def _time_s(self, position_s: float) -> float:
        return self._origin_s + (position_s - self._start_s) / self._factor


def _recording(config: EmulatorConfig, given: PoolConfig) -> RecordedMarket:
    if given.trace is None:
        assert given.spot_usd_hour is not None
        return constant(given.spot_usd_hour)
    try:
        found = load_recording(config.folder / given.trace, given.spot_usd_hour)
    except TraceError as error:
        raise ConfigError(f"{given.zone}/{given.instance_type}: {error}") from error
    if given.capacity_only and given.spot_usd_hour is not None:
        return replace(found, prices=(given.spot_usd_hour,) * len(found.prices))
    return found
