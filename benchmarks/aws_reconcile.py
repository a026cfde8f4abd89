"""A look of the AWS provider at 1,000 instances in three regions: seconds, and calls of AWS's API.

EC2 is moto inside this process, so its own work (building 1,000 descriptions and their XML) is in the first
figure; the second replays its recorded answers and so is the provider's part: requests, parsing, reports.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.measurement import Measurement, at_most

SECONDS = 2.0
CALLS = 12
REPEATS = 3
_REGIONS = {"us-east-1": 400, "us-east-2": 300, "us-west-2": 300}
_QUEUE = "spotweave-events"
_LIMITS = ("provider.LOOK_S", "prices.LOOK_S", "notices.QUEUE_S")
_KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """One pass is what the loop asks for: offers with new prices, and every instance of the deployment."""
    from moto import mock_aws

    rented = dict.fromkeys(_REGIONS, 2) if smallest else _REGIONS
    # Moto is slower than any region may be.
    patient = [mock.patch(f"spotweave.deploy.providers.aws.{name}", 3600.0) for name in _LIMITS]
    with mock.patch.dict(os.environ, _KEYS), patient[0], patient[1], patient[2]:
        with mock_aws():
            with_moto_s, calls, best = _measured(rented)
        # moto is off now: every answer is a recorded one.
        own_s = best()
    size = f"{sum(rented.values())} instances, {len(rented)} regions with a queue of events each"
    note = f"{size}, best of {REPEATS}"
    yield at_most("AWS reconcile, calls", calls, "calls", CALLS, note=note)
    yield at_most("AWS reconcile, provider's part", own_s, "s", SECONDS, note=f"{note}, replayed")
    yield at_most("AWS reconcile, with moto's work", with_moto_s, "s", note=f"{note}, moto")


def _measured(rented: Mapping[str, int]) -> tuple[float, int, Callable[[], float]]:
    """Seconds and calls of a pass with moto, and a function that measures one on recorded answers.

    Args:
        rented: how many instances each region has.
    """
    import boto3

    from spotweave.deploy.providers.aws import config as names
    from spotweave.deploy.providers.aws.config import AwsConfig
    from spotweave.deploy.providers.aws.provider import AwsProvider

    config = AwsConfig.model_validate(
        {
            "regions": {name: _rented(boto3, names, name, count) for name, count in rented.items()},
            "instance_types": {"m5.large": {"quota": sum(rented.values())}},
            "node": {"scheduler_url": "https://scheduler.example"},
            "events_queue": _QUEUE,
            "prices_every_s": 1e-6,
        }
    )
    recorder = _Recorder()
    session = boto3.Session()
    session.events.register("before-send", recorder.replay)
    session.events.register("before-parse", recorder.record)
    provider = AwsProvider(config, session)
    # The first look also asks for the day's prices of all regions, and for the queues' URLs.
    provider.offers()
    provider.describe("bench")

    def best() -> float:
        seconds = []
        for _ in range(REPEATS):
            recorder.calls = 0
            began_s = time.perf_counter()
            provider.offers()
            found = len(provider.describe("bench"))
            seconds.append(time.perf_counter() - began_s)
            if found != sum(rented.values()):
                raise ValueError(f"{found} instances were described, expected {sum(rented.values())}")
        return min(seconds)

    with_moto_s = best()
    recorder.replays = True
    return with_moto_s, recorder.calls, best


def _rented(boto3: Any, names: Any, region: str, count: int) -> dict[str, Any]:
    """A region with this many instances and a queue, as the configuration has it."""
    ec2 = boto3.client("ec2", region_name=region)
    zone, subnet = next(
        (one["AvailabilityZone"], one["SubnetId"]) for one in ec2.describe_subnets()["Subnets"]
    )
    image = ec2.describe_images()["Images"][0]["ImageId"]
    boto3.client("sqs", region_name=region).create_queue(QueueName=_QUEUE)
    tags = [{"Key": names.DEPLOYMENT, "Value": "bench"}, {"Key": names.TOKEN, "Value": "token"}]
    ec2.run_instances(
        ImageId=image,
        InstanceType="m5.large",
        MinCount=count,
        MaxCount=count,
        SubnetId=subnet,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return {"image": image, "security_group": "sg-0", "subnets": {zone: subnet}}


class _Recorder:
    """Counts requests, keeps the latest answer to each operation of a region, and gives it when told so."""

    def __init__(self) -> None:
        self.calls = 0
        self.replays = False
        self._sent = threading.local()
        self._answers: dict[tuple[str, str], bytes] = {}

    def record(self, response_dict: dict[str, Any], **_: Any) -> None:
        """Botocore is about to parse an answer."""
        self.calls += 1
        self._answers[self._sent.what] = response_dict["body"]

    def replay(self, request: Any, **_: Any) -> Any:
        """Botocore is about to send a request."""
        from botocore.awsrequest import AWSResponse

        asked = request.body.decode() if isinstance(request.body, bytes) else request.body
        target = request.headers.get("X-Amz-Target", b"")
        # EC2 names the operation in the body, SQS in a header.
        operation = next((part for part in asked.split("&") if part.startswith("Action=")), str(target))
        self._sent.what = (request.url, operation)
        if not self.replays:
            return None
        answer = self._answers[self._sent.what]
        # As much of a response as AWSResponse reads.
        return AWSResponse(request.url, 200, {}, SimpleNamespace(stream=lambda: [answer]))
