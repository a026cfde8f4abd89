"""What the Google Cloud provider may rent, and where: a YAML or JSON file. It holds no credentials."""

from __future__ import annotations

import hashlib
import importlib
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from spotweave.deploy.billing import Transfers
from spotweave.deploy.model.instances import LaunchRequest
from spotweave.deploy.providers.base import Provider
from spotweave.deploy.providers.cloud import CloudConfig, InstanceType
from spotweave.deploy.providers.config import Finding, Place
from spotweave.deploy.providers.gcp.prices import PriceList, load_prices
from spotweave.deploy.security.sandbox import Sandbox
from spotweave.deploy.yamlfile import Part, Positive

_Name = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
_Region = Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+$")]
_Zone = Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+\d+-[a-z]$")]
_Type = Annotated[str, Field(pattern=r"^[a-z0-9-]+(\+[1-9]\d*x[a-z0-9-]+)?$")]
_Label = Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,63}$")]
_LabelKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


class Region(Part):
    """One region."""

    zones: Annotated[tuple[_Zone, ...], Field(min_length=1)]  # that may be used
    subnetwork: _Name = "default"  # of every instance, in this region


class GcpConfig(CloudConfig):
    """The Google Cloud provider's configuration, besides the keys of `CloudConfig`."""

    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")]  # id of the project that pays
    regions: Annotated[dict[_Region, Region], Field(min_length=1)]
    # machine types, with attached GPUs as in "n1-standard-4+1xnvidia-tesla-t4"
    instance_types: Annotated[dict[_Type, InstanceType], Field(min_length=1)]
    # "projects/P/global/images/I", with Python and this package; see `node`
    image: Annotated[str, Field(pattern=r"^projects/[a-z0-9-]+/global/images/[a-z0-9-]+$")]
    network_tags: tuple[_Name, ...] = ()  # for firewall rules
    # email of the nodes' own; None: they may call nothing
    service_account: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    # "delete", or "stop": then the disk stays and costs until the scheduler ends it
    when_preempted: Literal["delete", "stop"] = "delete"
    disk_gib: Annotated[int, Field(ge=10, le=65536)] = 50  # of the boot disk
    disk_type: _Name = "pd-balanced"  # of the boot disk
    owner: _Label = ""  # label of everything that is rented
    labels: dict[_LabelKey, _Label] = Field(default_factory=dict)  # more labels
    prices_file: Path | None = None  # price list, relative to the configuration; None: the one that ships
    launch_s: Positive = 60.0
    provider: ClassVar[str] = "gcp"
    cloud: ClassVar[str] = "Google Cloud"

    @model_validator(mode="after")
    def _consistent(self) -> GcpConfig:
        try:
            importlib.import_module("google.cloud.compute_v1")
        except ImportError as error:
            raise ValueError(
                "renting from Google Cloud needs google-cloud-compute: pip install 'spotweave[deploy,gcp]'"
            ) from error
        for name, region in self.regions.items():
            for zone in region.zones:
                if zone.rpartition("-")[0] != name:
                    raise ValueError(f"zone {zone} is not in the region {name}")
        taken = sorted(key for key in self.labels if key.startswith("spotweave"))
        if taken:
            raise ValueError(f"label {taken[0]}: those that begin with spotweave are reserved")
        return self

    def region_of(self, zone: str) -> str:
        """`us-central1-a` lies in `us-central1`."""
        return zone.rpartition("-")[0]

    def prices(self) -> PriceList:
        """The price list; see `CloudConfig.prices`."""
        found = load_prices(None if self.prices_file is None else self.folder / self.prices_file)
        for place in self.unchecked_places():
            found.hardware(place.instance_type)
            found.steps(place)
            found.disk_usd_gib_month(place.region, self.disk_type)
        return found

    def open(self, sandbox: Sandbox | None = None) -> Provider:
        """Compute Engine. Raises ConfigError, ProviderError."""
        from spotweave.deploy.providers.gcp.provider import GcpProvider

        return GcpProvider(self)

    def check(self, deployment: str) -> Iterator[Finding]:
        """Credentials, rights, quotas, image and networks. Raises ConfigError."""
        from spotweave.deploy.providers.gcp.check import check

        return check(self)

    def transfers(self) -> Transfers:
        """Between its regions, and what leaves them for another cloud. Raises ConfigError."""
        prices = self.prices()
        return Transfers(
            regions=tuple(self.regions),
            usd_gb={
                (start, end): prices.egress_usd_gb(start, end)
                for start in prices.regions
                for end in self.regions
                if start != end
            },
            internet_usd_gb=dict.fromkeys(prices.regions, prices.egress.internet),
        )


DEPLOYMENT = "spotweave-deployment"
JOB = "spotweave-job"
TASK = "spotweave-task"
OWNER = "spotweave-owner"
TOKEN = "spotweave-token"
LABELS = {"deployment": DEPLOYMENT, "job_id": JOB, "task": TASK}  # by what a report calls them
_NAME = re.compile(r"sw-(?P<deployment>[0-9a-f]{6})-(?P<offer>[0-9a-f]{6})-(?P<token>[a-z0-9-]+)")
_PLAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?")
_SAFE = re.compile(r"[a-z0-9_-]{0,63}")


def instance_name(request: LaunchRequest) -> str:
    """At most 63 characters; the same request always gives the same."""
    token = request.client_token
    if _PLAIN.fullmatch(token) is None:
        # The token cannot be recovered from this name: its end is seen only while it is listed.
        token = f"h-{_digest(token, 32)}"
    return f"sw-{_digest(request.deployment, 6)}-{_digest(request.offer_id, 6)}-{token}"


def token_of(name: str, deployment: str, places: Mapping[str, Place]) -> tuple[str, Place] | None:
    """Client token and offer of an instance of a deployment; None for others, and where the name hides it."""
    found = _NAME.fullmatch(name)
    if found is None or found["deployment"] != _digest(deployment, 6) or found["token"].startswith("h-"):
        return None
    for offer_id, place in places.items():
        if _digest(offer_id, 6) == found["offer"]:
            return found["token"], place
    return None


def may_be(name: str, place: Place) -> bool:
    """Whether the name is that of an instance of this offer."""
    found = _NAME.fullmatch(name)
    return found is not None and found["offer"] == _digest(place.offer_id, 6)


def request_id(request: LaunchRequest, refused: tuple[str, ...]) -> str:
    """A UUID: the same request gives the same, until operations of it have failed.

    `refused` names those. Compute Engine answers a request id that it knows with the operation that it
    had, also if that failed.
    """
    text = "\n".join((request.deployment, request.client_token, *refused))
    return str(uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4))


def labels_of(request: LaunchRequest, config: GcpConfig) -> dict[str, str]:
    """Labels of an instance."""
    found = {
        **config.labels,
        **{key: label(getattr(request, name)) for name, key in LABELS.items()},
        TOKEN: label(request.client_token),
    }
    return {**found, OWNER: config.owner} if config.owner else found


def label(text: str) -> str:
    """As it is where a label may be so; else a hash of it."""
    return text if _SAFE.fullmatch(text) else f"h-{_digest(text, 32)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
