"""What is emulated, of any cloud: a YAML or JSON file."""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, FiniteFloat, model_validator

from spotweave.deploy.yamlfile import NotNegative, Part, Positive, YamlFile
from spotweave.envs.traces.importers import region_of

# What goes wrong on demand: throttling, errors, answers that are lost, launches that fail.


_Rate = Annotated[FiniteFloat, Field(ge=0, le=1)]


class CloudError(Exception):
    """A refusal, with a code of the service's documentation and a status of HTTP."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


class Spell(Part):
    """A span of time in which some calls get the same wrong answer each time."""

    # what `start_s` and `end_s` count from: 1970, or the emulator's first moment
    since: Literal["epoch", "start"] = "epoch"
    start_s: FiniteFloat = 0.0  # seconds of the emulator's clock
    end_s: float = math.inf  # the first moment at which all is well again
    actions: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)  # which calls, such as `ec2:*`
    regions: tuple[str, ...] = ()  # where; none: everywhere
    # `empty`: what is described is nothing; `lost`: the call has its effect and its answer never comes; else
    # the code of an error, known to us or not, without effect
    answer: Annotated[str, Field(pattern=r"^[A-Za-z._]+$")]

    def dated(self, origin_s: float) -> Spell:
        """The same in epoch seconds, for an emulator that began then."""
        if self.since == "epoch":
            return self
        times = {"start_s": self.start_s + origin_s, "end_s": self.end_s + origin_s}
        return self.model_copy(update={"since": "epoch", **times})

    def concerns(self, service: str, action: str, region: str, now_s: float) -> bool:
        """Whether the spell affects a call."""
        here = not self.regions or region in self.regions
        return here and self.start_s <= now_s < self.end_s and _matches(self.actions, service, action)


class FaultConfig(Part):
    """Shares and rates; all zero: nothing goes wrong."""

    error: _Rate = 0.0  # share of calls that fail without effect (InternalError, Unavailable)
    lost: _Rate = 0.0  # share of calls that have their effect and whose answer never comes
    launch_failure: _Rate = 0.0  # share of launches that are refused for lack of capacity
    launch_death: _Rate = 0.0  # share of launches that end in `terminated` instead of `running`
    notice_missed: _Rate = 0.0  # share of interruptions without notice
    # each service refills its bucket of requests so fast; None: no throttling
    calls_per_s: Positive | None = None
    burst: Annotated[int, Field(ge=1)] = 100  # size of that bucket
    # an instance is not described for so long after its launch
    describe_delay_s: NotNegative = 0.0
    clock_skew_s: FiniteFloat = 0.0  # the service's clock is so far ahead of the caller's
    actions: tuple[str, ...] = ("*",)  # the actions that `error` and `lost` concern, such as `ec2:*`
    spells: tuple[Spell, ...] = ()  # what goes wrong for a while, every time; `most` does not end them
    # after this many errors, lost answers and failed launches all is well; None: no end
    most: Annotated[int, Field(ge=0)] | None = None


class LostAnswerError(Exception):
    """The call was done, and the caller must never hear of it."""


Failure = Callable[[str, str], CloudError]
"""How one cloud says that something went wrong: from a service, and `throttled`, `internal` (its own fault),
`unavailable`, or the code that a configuration names."""


class Faults:
    """Decides what goes wrong, and counts it by kind. Not for several threads."""

    def __init__(self, config: FaultConfig, seed: int, failure: Failure) -> None:
        self._failure = failure
        self._random = random.Random(f"faults {seed}")
        self._buckets: dict[str, tuple[float, float]] = {}
        self.counts: Counter[str] = Counter()
        self._struck = 0
        self.config = config

    def change(self, config: FaultConfig) -> None:
        """Replace the configuration of faults."""
        self.config, self._struck = config, 0

    def strikes(self, kind: str, rate: float) -> bool:
        """Whether a fault of this kind, which happens at this rate, happens now."""
        most = self.config.most
        if rate <= 0 or (most is not None and self._struck >= most) or self._random.random() >= rate:
            return False
        self._struck += 1
        self.counts[kind] += 1
        return True

    def throttle(self, service: str, now_s: float) -> None:
        """Take a request out of the service's bucket. Raises CloudError if it is empty."""
        rate = self.config.calls_per_s
        if rate is None:
            return
        level, since_s = self._buckets.get(service, (float(self.config.burst), now_s))
        level = min(float(self.config.burst), level + max(0.0, now_s - since_s) * rate)
        if level < 1.0:
            self._buckets[service] = (level, now_s)
            self.counts["throttled"] += 1
            raise self._failure(service, "throttled")
        self._buckets[service] = (level - 1.0, now_s)

    def before(self, service: str, action: str, region: str, now_s: float) -> str:
        """Fail without effect. Returns the spell that its answer is under; "" for none. Raises CloudError."""
        for spell in self.config.spells:
            if not spell.concerns(service, action, region, now_s):
                continue
            self.counts[spell.answer] += 1
            if spell.answer in ("empty", "lost"):
                return spell.answer
            raise self._failure(service, spell.answer)
        if _matches(self.config.actions, service, action) and self.strikes("error", self.config.error):
            raise self._failure(service, "internal" if self._random.random() < 0.5 else "unavailable")
        return ""

    def after(self, service: str, action: str, spell: str) -> None:
        """Lose the answer. Raises LostAnswerError."""
        struck = _matches(self.config.actions, service, action) and self.strikes("lost", self.config.lost)
        if struck or spell == "lost":
            raise LostAnswerError


def _matches(patterns: Sequence[str], service: str, action: str) -> bool:
    return any(fnmatchcase(f"{service}:{action}", pattern) for pattern in patterns)


BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]


# What every emulated cloud is told.


class PoolConfig(Part):
    """The capacity of one instance type in one zone."""

    zone: str  # as the cloud names it; its region follows from it
    instance_type: str  # as the cloud names it
    # folder of a market trace (docs/traces.md) of its spot market, relative to the configuration; None: the
    # spot price never changes and capacity never ends
    trace: str | None = None
    spot_usd_hour: NotNegative | None = None  # spot price where the trace holds none, and without a trace
    capacity_only: bool = False  # take the trace's capacity, and `spot_usd_hour` for its price, as of a list
    on_demand_usd_hour: Positive  # price on demand
    # spot instances that fit while the trace says that there is capacity
    spot_capacity: Annotated[int, Field(ge=0)] = 10
    on_demand_capacity: Annotated[int, Field(ge=0)] = 100  # instances on demand that fit at any time

    @model_validator(mode="after")
    def _market(self) -> PoolConfig:
        if (self.trace is None or self.capacity_only) and self.spot_usd_hour is None:
            raise ValueError("give it a trace with prices or a spot_usd_hour")
        return self

    @property
    def region(self) -> str:
        """Region of the pool's zone."""
        return region_of(self.zone)

    @property
    @abstractmethod
    def vcpus(self) -> int:
        """Virtual cores of one instance."""


class EmulatorConfig(YamlFile):
    """What all emulated clouds are told."""

    disks: ClassVar[str]  # the key of the prices of disks by region
    state: Path  # folder of what instances that are processes keep; relative to the configuration
    # `real`, or `virtual`: time passes when `POST /_emulator/clock` says so
    clock: Literal["real", "virtual"] = "real"
    start_s: NotNegative = 1_750_000_000.0  # epoch seconds at which a virtual clock starts
    # recorded seconds that pass in one second of the clock. Prices stay per hour of the clock.
    time_factor: Positive = 1.0
    trace_start_s: NotNegative = 0.0  # where in the recordings the emulator's first moment lies
    seed: int = 0  # of everything that is left to chance
    # `processes`: each running instance is a group of processes with a loopback address of its own; `none`:
    # instances are states only
    machines: Literal["none", "processes"] = "none"
    pools: Sequence[PoolConfig]  # what can be rented
    launch_s: NotNegative = 20.0  # from the request until an instance runs
    shutdown_s: NotNegative = 5.0  # from the end of an instance until it is called terminated, or stopped
    notice_s: NotNegative  # of an interruption
    buckets: tuple[BucketName, ...] = ()  # of objects, that are there and empty at the start
    faults: FaultConfig = FaultConfig()  # what goes wrong

    @model_validator(mode="after")
    def _possible(self) -> EmulatorConfig:
        names = [(pool.zone, pool.instance_type) for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two pools are {'/'.join(twice[0])}: zone or type must differ")
        if self.machines == "processes" and self.clock == "virtual":
            raise ValueError("processes need the real clock")
        for region in self.regions:
            if region not in getattr(self, self.disks):
                raise ValueError(f"{self.disks} has no {region}, where there are pools: say what disks cost")
        return self

    def disk_usd(self, region: str) -> float:
        """Price of a GiB of any disk in a region for a month."""
        return float(getattr(self, self.disks)[region])

    @property
    def state_folder(self) -> Path:
        """Absolute."""
        return (self.folder / self.state).resolve()

    @property
    def regions(self) -> tuple[str, ...]:
        """Regions of the pools."""
        return tuple(sorted({pool.region for pool in self.pools}))
