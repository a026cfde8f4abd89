"""Instances as EC2 describes them, as the scheduler wants them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from deploy.model.instances import InstanceReport, InstanceState
from deploy.providers.aws.clients import Clients, aws_errors
from deploy.providers.aws.config import DEPLOYMENT, JOB, PROVIDER, TASK, TOKEN, AwsConfig, batches, tag_values
from deploy.providers.config import Place

PAGE = 1000  # the most that EC2 gives: 1,000 instances are one call
_STATES = {
    "pending": InstanceState.LAUNCHING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.STOPPING,
    "stopping": InstanceState.STOPPED,
    "stopped": InstanceState.STOPPED,
    "terminated": InstanceState.TERMINATED,
}
_NEVER_RAN = (
    "Server.InternalError",
    "Server.InsufficientInstanceCapacity",
    "Client.InternalError",
    "Client.InvalidSnapshot.NotFound",
    "Client.VolumeLimitExceeded",
)
"""An instance that is terminated for one of these ended at its launch, and EC2 charges nothing for it.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
"""
_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


@dataclass(frozen=True)
class Described:
    """A report and what only this provider needs. Where EC2 does not date an end, `ended_s` is None."""

    report: InstanceReport
    region: str
    deployment: str
    spot_request: str


def described(entry: Mapping[str, Any], region: str, config: AwsConfig) -> Described:
    """One entry of describe_instances or run_instances."""
    tags = tag_values(entry.get("Tags", ()))
    market: Any = "spot" if entry.get("InstanceLifecycle") == "spot" else "on_demand"
    place = Place(PROVIDER, region, entry["Placement"]["AvailabilityZone"], entry["InstanceType"], market)
    state = _STATES[entry["State"]["Name"]]
    key = "PrivateIpAddress" if config.node.address == "private" else "PublicIpAddress"
    address = str(entry.get(key) or "")
    launched_s = entry["LaunchTime"].timestamp()
    turned_s = ended_s = _when(str(entry.get("StateTransitionReason") or ""))
    if str(entry.get("StateReason", {}).get("Code", "")) in _NEVER_RAN:
        ended_s = launched_s
    report = InstanceReport(
        instance_id=entry["InstanceId"],
        client_token=tags.get(TOKEN, ""),
        offer_id=place.offer_id,
        address=address,
        node_port=config.node.port if address and state is InstanceState.RUNNING else 0,
        state=state,
        launched_s=launched_s,
        ended_s=ended_s if state is InstanceState.TERMINATED else None,
        by_provider=_by_provider(entry, state),
        # Preparing to stop is not billed any more (preparing to hibernate is, for some minutes).
        # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
        stopped_s=turned_s if state is InstanceState.STOPPED else None,
        tags={
            "deployment": tags.get(DEPLOYMENT, ""),
            "job_id": tags.get(JOB, ""),
            "task": tags.get(TASK, ""),
        },
    )
    return Described(report, region, tags.get(DEPLOYMENT, ""), entry.get("SpotInstanceRequestId", ""))


def of_deployment(clients: Clients, config: AwsConfig, region: str, deployment: str) -> list[Described]:
    """Every instance of a region with a deployment's tag: one call for each 1,000. Raises ProviderError."""
    return _filtered(clients, config, region, f"tag:{DEPLOYMENT}", [deployment])


def of_ids(clients: Clients, config: AwsConfig, region: str, ids: Sequence[str]) -> list[Described]:
    """Instances of a region by id. By a filter: unknown ids are no error then."""
    found = []
    for batch in batches(ids, 200):
        found += _filtered(clients, config, region, "instance-id", batch)
    return found


def spot_ends(clients: Clients, region: str, requests: Sequence[str]) -> dict[str, float]:
    """When spot requests ended (epoch seconds), of those that EC2 still dates. Raises ProviderError."""
    found: dict[str, float] = {}
    for batch in batches(requests, 200):
        with aws_errors(f"aws {region}: spot requests"):
            answer = clients.get("ec2", region).describe_spot_instance_requests(
                Filters=[{"Name": "spot-instance-request-id", "Values": list(batch)}]
            )
        for entry in answer["SpotInstanceRequests"]:
            status = entry.get("Status", {})
            if entry["State"] in ("closed", "cancelled", "failed") and "UpdateTime" in status:
                found[entry["SpotInstanceRequestId"]] = status["UpdateTime"].timestamp()
    return found


def undated(one: Described) -> bool:
    """Whether it is terminated, and EC2 does not say since when."""
    return one.report.state is InstanceState.TERMINATED and one.report.ended_s is None


def ended_at(one: Described, ended_s: float) -> Described:
    """The same with the time of its end; never before its launch."""
    return replace(one, report=replace(one.report, ended_s=max(one.report.launched_s, ended_s)))


def _filtered(
    clients: Clients, config: AwsConfig, region: str, name: str, values: Sequence[str]
) -> list[Described]:
    with aws_errors(f"aws {region}: instances"):
        asked = clients.get("ec2", region).get_paginator("describe_instances")
        pages = asked.paginate(
            Filters=[{"Name": name, "Values": list(values)}], PaginationConfig={"PageSize": PAGE}
        )
        return [
            described(entry, region, config)
            for page in pages
            for reservation in page["Reservations"]
            for entry in reservation["Instances"]
        ]


def _when(reason: str) -> float | None:
    """Parse the time in "User initiated (2026-01-31 12:00:00 GMT)"."""
    found = _TIME.search(reason)
    return None if found is None else datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()


def _by_provider(entry: Mapping[str, Any], state: InstanceState) -> bool:
    """Server.SpotInstanceTermination and its like, failed launches; other Client.… is our own doing."""
    code = str(entry.get("StateReason", {}).get("Code", ""))
    theirs = code.startswith("Server.") or code in _NEVER_RAN
    return theirs and state in (InstanceState.STOPPED, InstanceState.STOPPING, InstanceState.TERMINATED)
