"""EC2's events, through the EventBridge rules and SQS queues of the account (moto's)."""

from __future__ import annotations

import json
import uuid
from random import Random
from typing import Any, cast

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.events.models import events_backends
from moto.sqs.models import sqs_backends

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
EVENT_LEAD_S = 120.0
"""From the time of a warning to the end that it announces."""


class Events:
    """Sends what happens to instances to whoever made a rule for it."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"events {seed}")

    def send(
        self, region: str, kind: str, instance_id: str, zone: str, time_s: float, detail: dict[str, str]
    ) -> None:
        """One event.

        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
        """
        owner = zone if kind == WARNING else f"{region}:{DEFAULT_ACCOUNT_ID}"
        event = {
            "version": "0",
            "id": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
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


def make_queue(region: str, name: str) -> None:
    """A queue that gets all three kinds of events, as an administrator would set it up."""
    queue = sqs_backends[DEFAULT_ACCOUNT_ID][region].create_queue(name, tags=None)
    backend = events_backends[DEFAULT_ACCOUNT_ID][region]
    pattern = {"source": ["aws.ec2"], "detail-type": [WARNING, REBALANCE, STATE_CHANGE]}
    backend.put_rule(name=name, event_pattern=json.dumps(pattern), state="ENABLED")
    backend.put_targets(name=name, event_bus_arn=None, targets=[{"Id": "queue", "Arn": queue.queue_arn}])
