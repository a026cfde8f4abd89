"""What is emulated: a YAML or JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, PositiveInt, model_validator

from deploy.emulator.faults import FaultConfig
from deploy.yamlfile import Part, YamlFile

_Positive = Annotated[FiniteFloat, Field(gt=0)]
_NotNegative = Annotated[FiniteFloat, Field(ge=0)]
_Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
_BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
_TypeName = Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]

Bucket = Literal["standard", "g", "p", "inf"]
"""Which of the account's vCPU limits a type counts against."""


class PoolConfig(Part):
    """The capacity of one instance type in one zone.

    Attributes:
        zone: as AWS names it; its region follows from it.
        instance_type: as AWS names it.
        trace: folder of a market trace (docs/traces.md) of its spot market, relative to the configuration;
            None: the spot price never changes and capacity never ends.
        spot_usd_hour: spot price where the trace holds none, and without a trace.
        on_demand_usd_hour: price on demand; also the default of a spot request's maximum price.
        spot_capacity: spot instances that fit while the trace says that there is capacity.
        on_demand_capacity: instances on demand that fit at any time.
    """

    zone: _Zone
    instance_type: _TypeName
    trace: str | None = None
    spot_usd_hour: _NotNegative | None = None
    on_demand_usd_hour: _Positive
    spot_capacity: Annotated[int, Field(ge=0)] = 10
    on_demand_capacity: Annotated[int, Field(ge=0)] = 100

    @model_validator(mode="after")
    def _priced(self) -> PoolConfig:
        if self.trace is None and self.spot_usd_hour is None:
            raise ValueError("give it a trace or a spot_usd_hour")
        return self


class ImageConfig(Part):
    """A machine image that exists."""

    image_id: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")]
    name: str = "emulated"
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    root_device: str = "/dev/xvda"
    root_gib: PositiveInt = 8


class QuotaConfig(Part):
    """vCPUs that may run at once, per region."""

    standard: Annotated[int, Field(ge=0)] = 256
    g: Annotated[int, Field(ge=0)] = 64
    p: Annotated[int, Field(ge=0)] = 64
    inf: Annotated[int, Field(ge=0)] = 64


class EmulatorConfig(YamlFile):
    """The emulator's configuration.

    Attributes:
        state: folder of what instances that are processes keep; relative to the configuration.
        clock: `real`, or `virtual`: time passes when `POST /_emulator/clock` says so.
        start_s: epoch seconds at which a virtual clock starts.
        time_factor: recorded seconds that pass in one second of the clock. Prices stay per hour of the clock.
        trace_start_s: where in the recordings the emulator's first moment lies.
        seed: of everything that is left to chance.
        machines: `processes`: each running instance is a group of processes with a loopback address of its
            own; `none`: instances are states only.
        pools: what can be rented.
        images: machine images besides those that moto knows.
        access_keys: key ids that are accepted; None: any.
        denied: actions that the caller may not do, such as `ec2:RunInstances` or `s3:*`.
        spot_quota, on_demand_quota: limits of the account.
        launch_s: from the request until an instance runs.
        shutdown_s: from the end of an instance until it is called terminated, or stopped. Nobody pays for it.
        gp3_usd_gib_month: of disks, by region; every region with pools must be there.
        notice_s: of an interruption.
        rebalance_s: the rebalance recommendation comes so long before the notice.
        events_queue: name of a queue that is made at the start and gets the EC2 events; None: only rules made
            through the API are served.
        buckets: of S3, that are there and empty at the start.
        faults: what goes wrong.
    """

    state: Path = Path("emulated-aws")
    clock: Literal["real", "virtual"] = "real"
    start_s: _NotNegative = 1_750_000_000.0
    time_factor: _Positive = 1.0
    trace_start_s: _NotNegative = 0.0
    seed: int = 0
    machines: Literal["none", "processes"] = "none"
    pools: Annotated[tuple[PoolConfig, ...], Field(min_length=1)]
    images: tuple[ImageConfig, ...] = ()
    access_keys: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    spot_quota: QuotaConfig = QuotaConfig()
    on_demand_quota: QuotaConfig = QuotaConfig()
    launch_s: _NotNegative = 20.0
    shutdown_s: _NotNegative = 5.0
    gp3_usd_gib_month: dict[str, _NotNegative] = Field(
        default={"us-east-1": 0.08, "us-east-2": 0.08, "us-west-2": 0.08}
    )
    notice_s: _NotNegative = 120.0
    rebalance_s: _NotNegative = 60.0
    events_queue: str | None = None
    buckets: tuple[_BucketName, ...] = ()
    faults: FaultConfig = FaultConfig()

    @model_validator(mode="after")
    def _consistent(self) -> EmulatorConfig:
        names = [(pool.zone, pool.instance_type) for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two pools are {'/'.join(twice[0])}: zone or type must differ")
        for region in self.regions:
            if region not in self.gp3_usd_gib_month:
                raise ValueError(
                    f"gp3_usd_gib_month has no {region}, where there are pools: say what disks cost"
                )
        if self.machines == "processes" and self.clock == "virtual":
            raise ValueError("processes need the real clock")
        return self

    @property
    def state_folder(self) -> Path:
        """Absolute."""
        return (self.folder / self.state).resolve()

    @property
    def regions(self) -> tuple[str, ...]:
        """Of the pools."""
        return tuple(sorted({region_of(pool.zone) for pool in self.pools}))


def region_of(zone: str) -> str:
    """`us-east-1a` lies in `us-east-1`."""
    return zone[:-1]


def bucket_of(instance_type: str) -> Bucket:
    """The vCPU limit that a type counts against.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-quotas.html
    """
    family = instance_type.partition(".")[0]
    if family.startswith("inf"):
        return "inf"
    if family.startswith("vt") or family[0] == "g":
        return "g"
    return "p" if family[0] == "p" else "standard"
