"""What EC2 does with instances besides: spot requests, events, stops that it ends again, limits."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, ClassVar, cast

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.events.models import events_backends
from moto.sqs.models import sqs_backends

from spotweave.deploy.emulator.aws.wire import AwsEmulatorConfig, aws_failure, bucket_of
from spotweave.deploy.emulator.world import Instance, World
from spotweave.deploy.model.clock import Clock

STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
"""EC2's codes of an instance's states."""


@dataclass
class SpotRequest:
    """A spot instance request; `state` and `status` as EC2 names them."""

    request_id: str
    instance_id: str
    state: str = "active"
    status: str = "fulfilled"
    updated_s: float = 0.0


@dataclass(kw_only=True)
class Ec2Instance(Instance):
    """An instance of EC2; where it is a spot instance, `request` is there."""

    cloud: ClassVar[str] = "aws"
    reservation_id: str
    image_id: str
    request: SpotRequest | None = None
    reason: tuple[str, str] | None = None
    transition: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """See Instance; below /latest/meta-data/."""
        return {
            "local-ipv4": self.address,
            "ami-id": self.image_id,
            "instance-type": self.pool.instance_type,
            "instance-life-cycle": "spot" if self.spot else "on-demand",
            "placement/availability-zone": self.pool.zone,
            "placement/region": self.region,
        }


# EC2's events, through the EventBridge rules and SQS queues of the account (moto's).

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
EVENT_LEAD_S = 120.0  # seconds between a warning and the end that it announces


def make_queue(region: str, name: str) -> None:
    """A queue that gets all three kinds of events, as an administrator would set it up."""
    queue = sqs_backends[DEFAULT_ACCOUNT_ID][region].create_queue(name, tags=None)
    backend = events_backends[DEFAULT_ACCOUNT_ID][region]
    pattern = {"source": ["aws.ec2"], "detail-type": [WARNING, REBALANCE, STATE_CHANGE]}
    backend.put_rule(name=name, event_pattern=json.dumps(pattern), state="ENABLED")
    backend.put_targets(name=name, event_bus_arn=None, targets=[{"Id": "queue", "Arn": queue.queue_arn}])


KEPT_S = 3600.0  # terminated instances are described for so long


class Ec2World(World[Ec2Instance]):
    """See World."""

    def __init__(self, config: AwsEmulatorConfig, clock: Clock | None) -> None:
        super().__init__(config, clock, aws_failure)
        self.config = config
        self._event_ids = Random(f"events {config.seed}")
        self.requests: dict[str, SpotRequest] = {}
        self._shown: dict[str, Ec2Instance] = {}

    def new_id(self, prefix: str) -> str:
        """`i-0123456789abcdef0`."""
        return f"{prefix}-{self.random.getrandbits(68):017x}"

    def described(self, region: str) -> list[Ec2Instance]:
        """Instances that DescribeInstances may show now."""
        now_s = self.now_s()
        for name, one in list(self._shown.items()):
            if one.ended_s is not None and one.ended_s <= now_s - KEPT_S:
                del self._shown[name]
        return [one for one in self._shown.values() if one.region == region and one.first_seen_s <= now_s]

    def used_vcpus(self, region: str, instance_type: str, *, spot: bool) -> int:
        """Virtual cores that count against the limit of this type."""
        bucket = bucket_of(instance_type)
        return sum(
            one.pool.vcpus
            for one in self._living.values()
            if one.occupies
            and one.region == region
            and one.spot is spot
            and bucket_of(one.pool.instance_type) == bucket
        )

    def add(self, instance: Ec2Instance) -> None:
        """Launch it now."""
        self._shown[instance.instance_id] = instance
        if instance.request is not None:
            self.requests[instance.request.request_id] = instance.request
        super().add(instance)

    def _advice_s(self, begun_s: float, notice_s: float) -> float | None:
        return max(begun_s, notice_s - self.config.rebalance_s)

    def _on_begin(self, instance: Ec2Instance, at_s: float) -> None:
        instance.reason, instance.transition = None, ""

    def _on_turn(self, instance: Ec2Instance, at_s: float) -> None:
        self._tell(instance, STATE_CHANGE, at_s, {"state": instance.state})

    def _on_advice(self, instance: Ec2Instance, at_s: float) -> None:
        self._tell(instance, REBALANCE, at_s, {})

    def _on_notice(self, instance: Ec2Instance, at_s: float) -> None:
        if instance.request is not None:
            instance.request.status, instance.request.updated_s = "marked-for-termination", at_s
        # Of the end an event says no more than its own time, from which it is 120 s: so it is dated back
        # where the notice is shorter here.
        kill_s = instance.fate.kill_s
        dated_s = at_s if kill_s is None else kill_s - EVENT_LEAD_S
        self._tell(instance, WARNING, dated_s, {"instance-action": "terminate"})

    def _on_death(self, instance: Ec2Instance, at_s: float) -> None:
        instance.reason = ("Server.InternalError", "Server.InternalError: Internal error on launch")
        instance.transition = "Server.InternalError"
        if instance.request is not None:
            instance.request.state, instance.request.updated_s = "closed", at_s
            instance.request.status = "instance-terminated-launch-failed"

    def _on_end(self, instance: Ec2Instance, at_s: float, final: str, *, by_provider: bool) -> None:
        who, when = "Service" if by_provider else "User", datetime.fromtimestamp(at_s, UTC)
        instance.transition = f"{who} initiated ({when:%Y-%m-%d %H:%M:%S} GMT)"
        code, text = "Server.SpotInstanceTermination", "Spot instance termination"
        if not by_provider:
            code, text = "Client.UserInitiatedShutdown", "User initiated shutdown"
        instance.reason = (code, f"{code}: {text}")
        self._close_request(instance, at_s, final, by_provider=by_provider)

    def _close_request(self, instance: Ec2Instance, at_s: float, final: str, *, by_provider: bool) -> None:
        request = instance.request
        if request is None:
            return
        what = "terminated" if final == "terminated" else "stopped"
        if not by_provider:
            why = "by-user"
        elif self.market.price(instance.pool, at_s) > instance.max_usd_hour:
            why = "by-price"
        else:
            why = "no-capacity"
        request.status, request.updated_s = f"instance-{what}-{why}", at_s
        request.state = "closed" if final == "terminated" else "disabled"

    def _tell(self, instance: Ec2Instance, kind: str, at_s: float, detail: dict[str, str]) -> None:
        self.send(instance.region, kind, instance.instance_id, instance.pool.zone, at_s, detail)

    def send(
        self, region: str, kind: str, instance_id: str, zone: str, time_s: float, detail: dict[str, str]
    ) -> None:
        """Send an event to whoever made a rule for it.

        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
        """
        owner = zone if kind == WARNING else f"{region}:{DEFAULT_ACCOUNT_ID}"
        event = {
            "version": "0",
            "id": str(uuid.UUID(int=self._event_ids.getrandbits(128), version=4)),
            "detail-type": kind,
            "source": "aws.ec2",
            "account": DEFAULT_ACCOUNT_ID,
            # moto turns it into text where it sends it.
            "time": time_s,
            "region": region,
            "resources": [f"arn:aws:ec2:{owner}:instance/{instance_id}"],
            "detail": {"instance-id": instance_id, **detail},
        }
        for bus in events_backends[DEFAULT_ACCOUNT_ID][region].event_buses.values():
            for rule in bus.rules.values():
                if rule.state == "ENABLED":
                    # moto's transformer takes milliseconds, also where there is nothing to transform.
                    transformed = any("InputTransformer" in target for target in rule.targets)
                    sent = {**event, "ingestion-time": time_s} if transformed else dict(event)
                    rule.send_to_targets(cast(Any, sent), transform_input=transformed)
