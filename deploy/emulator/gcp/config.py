"""What is emulated of Google Cloud: a YAML or JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt, model_validator

from spotweave.deploy.emulator.config import EmulatorConfig, PoolConfig
from spotweave.deploy.yamlfile import NotNegative


class GcpPoolConfig(PoolConfig):
    """A pool of Compute Engine. Its prices are of a whole instance, with its GPUs."""

    zone: Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+-[a-z]$")]
    # a machine type, and what is attached to it: `n1-standard-4+1xnvidia-tesla-t4`
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+(\+\d+x[a-z0-9-]+)?$")]
    n_vcpus: PositiveInt  # virtual cores of one instance

    @property
    def vcpus(self) -> int:
        """See PoolConfig."""
        return self.n_vcpus


class GcpEmulatorConfig(EmulatorConfig):
    """The configuration of an emulated Google Cloud project."""

    disks: ClassVar[str] = "disk_usd_gib_month"
    state: Path = Path("emulated-gcp")
    # the only one that there is
    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")] = "spotweave-emulated"
    pools: Annotated[tuple[GcpPoolConfig, ...], Field(min_length=1)]  # what can be rented
    # names of images, as `projects/P/global/images/I`, that exist
    images: tuple[str, ...] = ("projects/spotweave-emulated/global/images/spotweave",)
    subnetworks: tuple[str, ...] = ("default",)  # names of subnetworks that each region has
    # permissions that the caller does not have, such as `compute.instances.create`
    denied: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()  # APIs that are not enabled, such as `compute.googleapis.com`
    token: str | None = None  # what callers must show; None: anything, also nothing
    # cores that may run at once in a region, spot and on demand apart
    quota_vcpus: Annotated[int, Field(ge=0)] = 256
    # further quotas of each region, by metric, such as `NVIDIA_T4_GPUS`; they are shown only
    quotas: dict[str, int] = Field(default_factory=dict)
    notice_s: NotNegative = 30.0
    # from an insert's request until its operation is done. In virtual time that passes.
    operation_s: NotNegative = 1.0
    # of disks, by region
    disk_usd_gib_month: dict[str, NotNegative] = Field(
        default={"us-central1": 0.1, "us-east1": 0.1, "us-west1": 0.1, "europe-west4": 0.11}
    )

    @model_validator(mode="after")
    def _consistent(self) -> GcpEmulatorConfig:
        if self.faults.launch_death:
            raise ValueError("faults.launch_death: what Compute Engine cannot launch is an operation's error")
        return self
