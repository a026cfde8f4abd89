"""Instances as EC2 describes them, as the scheduler wants them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from spotweave.deploy.model.instances import InstanceReport, InstanceState
from spotweave.deploy.providers.aws.clients import Clients, aws_errors
from spotweave.deploy.providers.aws.config import TAGS, TOKEN, AwsConfig, batches
from spotweave.deploy.providers.config import Place

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


def described(entry: Mapping[str, Any], region: str, config: AwsConfig) -> InstanceReport:
    """One entry of describe_instances or run_instances. Where EC2 does not date an end, it has none."""
    tags = {tag["Key"]: tag["Value"] for tag in entry.get("Tags", ())}
    market: Any = "spot" if entry.get("InstanceLifecycle") == "spot" else "on_demand"
    place = Place(
        config.provider, region, entry["Placement"]["AvailabilityZone"], entry["InstanceType"], market
    )
    state = _STATES[entry["State"]["Name"]]
    key = "PrivateIpAddress" if config.node.address == "private" else "PublicIpAddress"
    address = str(entry.get(key) or "")
    launched_s = entry["LaunchTime"].timestamp()
    turned_s = ended_s = _when(str(entry.get("StateTransitionReason") or ""))
    if str(entry.get("StateReason", {}).get("Code", "")) in _NEVER_RAN:
        ended_s = launched_s
    return InstanceReport(
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
        tags={name: tags.get(tag, "") for name, tag in TAGS.items()},
    )


def listed(
    clients: Clients, config: AwsConfig, region: str, name: str, values: Sequence[str]
) -> list[tuple[InstanceReport, str]]:
    """A region's instances by a filter, with their spot requests: one call for each 1,000.

    Unknown ids are no error. Raises ProviderError.
    """
    with aws_errors(f"aws {region}: instances"):
        asked = clients.get("ec2", region).get_paginator("describe_instances")
        pages = asked.paginate(
            Filters=[{"Name": name, "Values": list(values)}], PaginationConfig={"PageSize": PAGE}
        )
        return [
            (described(entry, region, config), entry.get("SpotInstanceRequestId", ""))
            for page in pages
            for reservation in page["Reservations"]
            for entry in reservation["Instances"]
        ]


def of_ids(clients: Clients, config: AwsConfig, region: str, ids: Sequence[str]) -> list[InstanceReport]:
    """Instances of a region by id. Raises ProviderError."""
    found = []
    for batch in batches(ids, 200):
        found += [report for report, _ in listed(clients, config, region, "instance-id", batch)]
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


def undated(one: InstanceReport) -> bool:
    """Whether it is terminated, and EC2 does not say since when."""
    return one.state is InstanceState.TERMINATED and one.ended_s is None


def dated(one: InstanceReport, ended_s: float) -> InstanceReport:
    """The same with the time of its end, if EC2 does not say it; never before its launch."""
    return replace(one, ended_s=max(one.launched_s, ended_s)) if undated(one) else one


def _when(reason: str) -> float | None:
    """Parse the time in "User initiated (2026-01-31 12:00:00 GMT)"."""
    found = _TIME.search(reason)
    return None if found is None else datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()


def _by_provider(entry: Mapping[str, Any], state: InstanceState) -> bool:
    """Server.SpotInstanceTermination and its like, failed launches; other Client.… is our own doing."""
    code = str(entry.get("StateReason", {}).get("Code", ""))
    theirs = code.startswith("Server.") or code in _NEVER_RAN
    return theirs and state in (InstanceState.STOPPED, InstanceState.STOPPING, InstanceState.TERMINATED)
