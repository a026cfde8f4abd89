"""A look of the AWS provider at 1,000 instances: seconds, and calls of EC2's API.

EC2 is moto inside this process, so its own work (building 1,000 descriptions and their XML) is in the first
figure; the second replays its recorded answers and so is the provider's part: requests, parsing, reports.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from benchmarks.measurement import Measurement

INSTANCES = 1000
SECONDS = 2.0
CALLS = 12
REPEATS = 3
_REGION = "us-east-1"
_KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def measure() -> Iterator[Measurement]:
    """One pass is what the loop asks for: offers with new prices, and every instance of the deployment."""
    from moto import mock_aws

    with mock.patch.dict(os.environ, _KEYS):
        server = mock_aws()
        server.start()
        try:
            with_moto_s, calls, best = _measured()
        finally:
            server.stop()
        # moto is off now: every answer is a recorded one.
        own_s = best()
    note = f"{INSTANCES} instances, 1 region, best of {REPEATS}"
    yield Measurement("AWS reconcile, EC2's calls", calls, "calls", CALLS, higher_is_better=False, note=note)
    yield Measurement(
        "AWS reconcile, provider's part",
        own_s,
        "s",
        SECONDS,
        higher_is_better=False,
        note=f"{note}, replayed",
    )
    yield Measurement(
        "AWS reconcile, with moto's work", with_moto_s, "s", higher_is_better=False, note=f"{note}, moto"
    )


def _measured() -> tuple[float, int, Callable[[], float]]:
    """Seconds and calls of a pass with moto; and a function that measures one on recorded answers."""
    import boto3

    from deploy.providers.aws import names
    from deploy.providers.aws.config import AwsConfig
    from deploy.providers.aws.provider import AwsProvider

    ec2 = boto3.client("ec2", region_name=_REGION)
    subnets = {one["AvailabilityZone"]: one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]}
    image = ec2.describe_images()["Images"][0]["ImageId"]
    config = AwsConfig.model_validate(
        {
            "regions": {
                _REGION: {
                    "image": image,
                    "security_group": "sg-0",
                    "subnets": {f"{_REGION}a": subnets[f"{_REGION}a"]},
                }
            },
            "instance_types": {"m5.large": {"quota": INSTANCES}},
            "node": {"scheduler_url": "https://scheduler.example"},
            "prices_every_s": 1e-6,
        }
    )
    tags = [{"Key": names.DEPLOYMENT, "Value": "bench"}, {"Key": names.TOKEN, "Value": "token"}]
    ec2.run_instances(
        ImageId=image,
        InstanceType="m5.large",
        MinCount=INSTANCES,
        MaxCount=INSTANCES,
        SubnetId=subnets[f"{_REGION}a"],
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    recorder = _Recorder()
    session = boto3.Session()
    session.events.register("before-send.ec2", recorder.replay)
    session.events.register("before-parse.ec2", recorder.record)
    provider = AwsProvider(config, session)

    def best() -> float:
        seconds = []
        for _ in range(REPEATS):
            recorder.calls = 0
            began_s = time.perf_counter()
            provider.offers()
            found = len(provider.describe("bench"))
            seconds.append(time.perf_counter() - began_s)
            if found != INSTANCES:
                raise ValueError(f"{found} instances were described, expected {INSTANCES}")
        return min(seconds)

    with_moto_s = best()
    recorder.replays = True
    return with_moto_s, recorder.calls, best


class _Recorder:
    """Counts requests, keeps the answer of each operation, and gives it again when told so."""

    def __init__(self) -> None:
        self.calls = 0
        self.replays = False
        self._answers: dict[str, bytes] = {}

    def record(self, operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
        """Botocore is about to parse an answer."""
        self.calls += 1
        self._answers.setdefault(operation_model.name, response_dict["body"])

    def replay(self, request: Any, **_: Any) -> Any:
        """Botocore is about to send a request."""
        from botocore.awsrequest import AWSResponse

        if not self.replays:
            return None
        asked = request.body.decode() if isinstance(request.body, bytes) else request.body
        for name, body in self._answers.items():
            if f"Action={name}&" in asked:
                return AWSResponse(request.url, 200, {}, _Raw(body))
        return None


class _Raw:
    """As much of a response as AWSResponse reads."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body
