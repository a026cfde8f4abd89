"""S3 of an emulated account, without a network."""

from __future__ import annotations

from typing import Any

from deploy.emulator.aws.app import App
from deploy.emulator.aws.config import AwsEmulatorConfig
from deploy.emulator.aws.emulator import AwsEmulator
from deploy.emulator.faults import FaultConfig
from deploy.objects.location import Bucket
from deploy.objects.s3 import S3Objects
from deploy.providers.aws.clients import Clients
from tests.deploy.emulator.aws.transport import in_process

BUCKET = "spotweave-tests"
POOL = {"zone": "us-east-1a", "instance_type": "m5.large", "spot_usd_hour": 0.1, "on_demand_usd_hour": 0.2}


class Account:
    """S3 of an emulated account, with one empty bucket.

    Args:
        changes: of the emulator's configuration.
    """

    def __init__(self, **changes: Any) -> None:
        self.emulator = AwsEmulator(
            AwsEmulatorConfig.model_validate(
                {"clock": "virtual", "pools": [POOL], "buckets": [BUCKET], **changes}
            )
        )
        self.session = in_process(App(self.emulator))
        # With an address of its own the bucket's name is in the path, where the emulator looks for it.
        self.clients = Clients(endpoint_url="http://127.0.0.1:1", session=self.session)
        self.plain = self.clients.get("s3", "us-east-1")

    def objects(self, bucket: str = BUCKET) -> S3Objects:
        """Those below the prefix `here`."""
        return S3Objects(self.clients, Bucket(bucket, "here"))

    def fail(self, **faults: Any) -> None:
        """What goes wrong from now on."""
        self.emulator.faults.change(FaultConfig.model_validate(faults))

    def calls(self, action: str) -> int:
        """How often S3 was asked to do this."""
        return self.emulator.calls[f"s3:{action}"]
