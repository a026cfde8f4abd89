"""EC2 for tests: moto, and around it what moto does not play: prices, refusals, interruptions.

Hooks of botocore answer before moto does. Every request is built, and every parameter checked, by the real
SDK from its own model of the service.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse

from deploy.model.clock import VirtualClock
from deploy.providers.aws.config import AwsConfig

REGION = "us-east-1"
TYPE = "m5.large"
OTHER = "g4dn.xlarge"
START_S = 1_760_000_000.0
PAGE = 2
"""Entries of a page of the price history."""


@dataclass
class FakeAws:
    """One account.

    Attributes:
        prices: (epoch seconds, USD per hour) by (zone, type), by rising time.
        failures: codes with which the next calls of an operation fail.
        ended: interrupted instances and when.
        calls: how often what was called, as policies name it.
        asked: parameters of the calls of interest, the latest last.
        hidden: instances that describe does not show yet.
        answers: canned answers by operation.
        down: regions that answer nothing but errors.
        clock: of providers, for those who hand it on to them.
    """

    prices: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    asked: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(time.time()))

    def session(self) -> Any:
        """A session of boto3 that talks to this account."""
        session = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing")
        session.events.register("provide-client-params", self._note)
        session.events.register("before-call", self._answer)
        session.events.register("after-call.ec2.DescribeInstances", self._described)
        return session

    def interrupt(self, instance_id: str, now_s: float) -> None:
        """EC2 takes an instance away."""
        self.ended[instance_id] = now_s
        boto3.client("ec2", region_name=REGION).terminate_instances(InstanceIds=[instance_id])

    def set_price(self, usd_hour: float, since_s: float = START_S - 7200, zones: str = "ab") -> None:
        """The spot price of both types in some zones."""
        for zone in zones:
            for kind in (TYPE, OTHER):
                self.prices.setdefault((f"{REGION}{zone}", kind), []).append((since_s, usd_hour))

    # Hooks.

    def _note(self, params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["asked"] = dict(params)

    def _answer(self, model: Any, context: Mapping[str, Any], **_: Any) -> tuple[Any, Any] | None:
        name, asked = model.name, context["asked"]
        self.calls[f"{model.service_model.signing_name}:{name}"] += 1
        self.asked.setdefault(name, []).append(asked)
        if context["client_region"] in self.down:
            return refusal("RegionIsDown")
        if self.failures.get(name):
            return refusal(self.failures[name].pop(0))
        if name in self.answers:
            return _given(self.answers[name])
        answer = getattr(self, f"_on_{name}", None)
        return None if answer is None else answer(asked)

    def _on_DescribeSpotPriceHistory(self, asked: dict[str, Any]) -> tuple[Any, Any]:  # noqa: N802
        zones = next(one["Values"] for one in asked["Filters"] if one["Name"] == "availability-zone")
        start_s = asked["StartTime"].timestamp()
        rows = []
        for (zone, kind), series in self.prices.items():
            if zone in zones and kind in asked["InstanceTypes"]:
                later = [row for row in series if row[0] >= start_s]
                before = [row for row in series if row[0] < start_s][-1:]
                rows += [(time_s, zone, kind, price) for time_s, price in before + later]
        rows.sort(reverse=True)
        first = int(asked.get("NextToken") or 0)
        end = first + PAGE
        about = {"ProductDescription": "Linux/UNIX"}
        entries = [
            about
            | {"AvailabilityZone": zone, "InstanceType": kind, "SpotPrice": f"{price:.6f}"}
            | {"Timestamp": datetime.fromtimestamp(time_s, UTC)}
            for time_s, zone, kind, price in rows[first:end]
        ]
        return _given({"SpotPriceHistory": entries, "NextToken": str(end) if end < len(rows) else ""})

    def _on_DescribeSpotInstanceRequests(self, asked: dict[str, Any]) -> tuple[Any, Any]:  # noqa: N802
        wanted = asked["Filters"][0]["Values"]
        why = "instance-terminated-no-capacity"
        entries = [
            {"SpotInstanceRequestId": f"sir-{name}", "State": "closed"}
            | {"Status": {"Code": why, "UpdateTime": datetime.fromtimestamp(ended_s, UTC)}}
            for name, ended_s in self.ended.items()
            if f"sir-{name}" in wanted
        ]
        return _given({"SpotInstanceRequests": entries})

    def _described(self, parsed: dict[str, Any], **_: Any) -> None:
        for reservation in parsed.get("Reservations", []):
            shown = [one for one in reservation["Instances"] if one["InstanceId"] not in self.hidden]
            reservation["Instances"] = shown
            for one in shown:
                if one["InstanceId"] in self.ended:
                    one["SpotInstanceRequestId"] = f"sir-{one['InstanceId']}"
                    one["StateTransitionReason"] = "Server.SpotInstanceTermination"
                    one["StateReason"] = {"Code": "Server.SpotInstanceTermination", "Message": ""}


def _given(parsed: Mapping[str, Any], status: int = 200) -> tuple[Any, Any]:
    about = {"HTTPStatusCode": status, "HTTPHeaders": {}, "RequestId": "fake"}
    return AWSResponse("", status, {}, None), {**parsed, "ResponseMetadata": about}


def refusal(code: str) -> tuple[Any, Any]:
    """An answer that is an error."""
    return _given({"Error": {"Code": code, "Message": "said the fake."}}, 400)


@cache
def image_in(region: str) -> str:
    """The first image that fits. moto has the same ones in every account, and needs seconds to list them."""
    found = boto3.client("ec2", region_name=region).describe_images(
        Filters=[{"Name": "architecture", "Values": ["x86_64"]}]
    )
    return str(found["Images"][0]["ImageId"])


def region_config(region: str = REGION) -> dict[str, Any]:
    """What the account has in a region."""
    ec2 = boto3.client("ec2", region_name=region)
    subnets = {one["AvailabilityZone"]: one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]}
    group = ec2.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]["GroupId"]
    return {
        "image": image_in(region),
        "security_group": group,
        "subnets": {f"{region}{letter}": subnets[f"{region}{letter}"] for letter in "ab"},
    }


def write_config(folder: Path, **changes: Any) -> Path:
    """A configuration of what the account has; JSON is YAML."""
    content = {
        "regions": {REGION: region_config()},
        "instance_types": {TYPE: {"quota": 2}, OTHER: {"quota": 2, "speed": 0.5}},
        "node": {"scheduler_url": "https://scheduler.example:8443"},
        "state": "state",
        **changes,
    }
    path = folder / "aws.yaml"
    path.write_text(json.dumps(content))
    return path


def make_config(folder: Path, **changes: Any) -> AwsConfig:
    """The same, read."""
    return AwsConfig.load(write_config(folder, **changes))
