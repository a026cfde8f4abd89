"""Buckets of emulated clouds, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from spotweave.deploy.emulator.aws.emulator import AwsEmulator
from spotweave.deploy.emulator.aws.wire import AwsEmulatorConfig
from spotweave.deploy.emulator.config import FaultConfig
from spotweave.deploy.emulator.gcp.emulator import GcpEmulator
from spotweave.deploy.emulator.gcp.storage import Storage
from spotweave.deploy.emulator.gcp.world import GcpEmulatorConfig
from spotweave.deploy.emulator.server import Emulator
from spotweave.deploy.objects.gcs import GcsObjects
from spotweave.deploy.objects.gcs import check_bucket as check_gcs_bucket
from spotweave.deploy.objects.location import Bucket, Objects
from spotweave.deploy.objects.s3 import S3Objects, check_bucket
from spotweave.deploy.providers.aws.clients import Clients
from spotweave.deploy.providers.config import Finding
from tests.deploy.emulator.transport import InProcess, in_process

BUCKET = "spotweave-tests"
POOL = {"zone": "us-east-1a", "instance_type": "m5.large", "spot_usd_hour": 0.1, "on_demand_usd_hour": 0.2}
GCP_POOL = {**POOL, "zone": "us-east1-b", "instance_type": "e2-standard-2", "n_vcpus": 2}


class S3:
    """S3 of an emulated account, with one empty bucket; `changes` are of the emulator's configuration."""

    put, listing, delete = "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"
    scheme = "s3"

    def __init__(self, **changes: Any) -> None:
        content = {"clock": "virtual", "pools": [POOL], "buckets": [BUCKET], **changes}
        emulator = AwsEmulator(AwsEmulatorConfig.model_validate(content))
        self.emulator: Emulator = emulator
        self.session = in_process(emulator)
        # With an address of its own the bucket's name is in the path, where the emulator looks for it.
        self.clients = Clients(endpoint_url="http://127.0.0.1:1", session=self.session)
        self.plain = self.clients.get("s3", "us-east-1")

    def objects(self, bucket: str = BUCKET) -> Objects:
        """Those below the prefix `here`."""
        return S3Objects(self.clients, Bucket(bucket, "here"))

    def check(self) -> Iterator[Finding]:
        return check_bucket(self.clients, Bucket(BUCKET, "here"))

    def copy(self, name: str, others: list[str]) -> None:
        """Make many objects of one, without the interface."""
        content = self.objects().get(name) or b""
        for other in others:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, f"here/{other}", content)

    def fail(self, **faults: Any) -> None:
        self.emulator.faults.change(FaultConfig.model_validate(faults))

    def calls(self, action: str) -> int:
        return self.emulator.calls[action]


class Gcs(S3):
    """Cloud Storage of an emulated project, the same."""

    put, listing, delete = "storage:objects.create", "storage:objects.list", "storage:objects.delete"
    scheme = "gs"

    def __init__(self, **changes: Any) -> None:
        content = {"clock": "virtual", "pools": [GCP_POOL], "buckets": [BUCKET], **changes}
        emulator = GcpEmulator(GcpEmulatorConfig.model_validate(content))
        self.emulator, self._storage = emulator, emulator._others[0]
        self.project = InProcess(emulator)

    def objects(self, bucket: str = BUCKET) -> GcsObjects:
        return GcsObjects(self.project, Bucket(bucket, "here", "gs"))

    @property
    def kept(self) -> dict[str, Any]:
        """Objects as the emulator has them."""
        assert isinstance(self._storage, Storage)
        found: dict[str, Any] = self._storage.buckets[BUCKET]
        return found

    def copy(self, name: str, others: list[str]) -> None:
        self.kept.update({f"here/{other}": self.kept[f"here/{name}"] for other in others})

    def check(self) -> Iterator[Finding]:
        return check_gcs_bucket(self.project, Bucket(BUCKET, "here", "gs"))
