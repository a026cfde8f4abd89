"""What is emulated, of any cloud: a YAML or JSON file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from spotweave.deploy.emulator.faults import FaultConfig
from spotweave.deploy.yamlfile import NotNegative, Part, Positive, YamlFile
from spotweave.envs.traces.importers import region_of

BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]


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
