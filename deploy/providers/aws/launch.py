"""Renting one instance of one offer: run_instances, idempotent by its client token."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest
from spotweave.deploy.providers.aws.clients import Clients, aws_errors, code_of
from spotweave.deploy.providers.aws.config import (
    DEPLOYMENT,
    OWNER,
    TAGS,
    TOKEN,
    AwsConfig,
    batches,
    client_token,
    tags_of,
)
from spotweave.deploy.providers.base import ProviderError, RefusedError
from spotweave.deploy.providers.config import Place
from spotweave.deploy.providers.userdata import user_data

# Launch templates: what all instances of a deployment have in common, made once for each region.
#
# A template's name holds a hash of its content, so making it is idempotent, and a changed configuration
# makes another one.


def template_data(config: AwsConfig, region: str, deployment: str, root_device: str) -> dict[str, Any]:
    """The content. Nothing in it is secret, and no instance's own."""
    part = config.regions[region]
    tags = [
        {"Key": key, "Value": value}
        for key, value in {**config.tags, DEPLOYMENT: deployment, OWNER: config.owner}.items()
        if value
    ]
    data: dict[str, Any] = {
        "ImageId": part.image,
        "SecurityGroupIds": [part.security_group],
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": root_device,
                "Ebs": {
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                    "VolumeSize": config.disk_gib,
                    "VolumeType": "gp3",
                },
            }
        ],
        "TagSpecifications": [{"ResourceType": "volume", "Tags": tags}],
    }
    if config.instance_profile is not None:
        data["IamInstanceProfile"] = {"Name": config.instance_profile}
    if config.key_name is not None:
        data["KeyName"] = config.key_name
    return data


class Launcher:
    """Safe to use from several threads."""

    def __init__(self, clients: Clients, config: AwsConfig) -> None:
        self._clients, self._config = clients, config
        self._ca_pem = config.ca_pem()
        self._made: dict[tuple[str, str], str] = {}
        self._roots: dict[str, str] = {}
        self._lock = threading.Lock()

    def run(self, request: LaunchRequest, place: Place) -> InstanceReport:
        """Rent one instance, or learn of the one that this client token has rented; see `Provider.launch`."""
        config, region = self._config, place.region
        arguments: dict[str, Any] = {
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": client_token(request),
            "InstanceType": place.instance_type,
            "SubnetId": config.regions[region].subnets[place.zone],
            "UserData": user_data(request, config.node, self._ca_pem, "ec2", USER_DATA_BYTES),
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags_of(request, config)}],
        }
        if place.market == "spot":
            limit = config.instance_types[place.instance_type].max_price_usd_hour
            arguments["InstanceMarketOptions"] = market_options(limit)
        doing = f"aws {place.zone}: launch of {place.instance_type} ({place.market})"
        for last in (False, True):
            template = self._template(region, request.deployment)
            try:
                with aws_errors(doing):
                    answer = self._clients.get("ec2", region).run_instances(
                        LaunchTemplate={"LaunchTemplateName": template, "Version": "1"}, **arguments
                    )
                return described(answer["Instances"][0], region, config)
            except ProviderError as error:
                if last or not code_of(error.__cause__).startswith("InvalidLaunchTemplate"):
                    raise
                # Somebody deleted it: it is made again.
                with self._lock:
                    self._made.pop((region, request.deployment), None)
        raise AssertionError("unreachable")

    def _template(self, region: str, deployment: str) -> str:
        """The name of the template, which is there when this returns. Raises ProviderError."""
        key = (region, deployment)
        with self._lock:
            made = self._made.get(key)
        if made is None:
            # Not locked: a region that hangs must not hold up the others. Making it twice is no harm.
            made = self._make(region, deployment)
            with self._lock:
                self._made[key] = made
        return made

    def _make(self, region: str, deployment: str) -> str:
        data = template_data(self._config, region, deployment, self._root_device(region))
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
        safe = re.sub(r"[^A-Za-z0-9._-]", "-", deployment)[:80]
        name = f"spotweave-{safe}-{digest}"
        tags = data["TagSpecifications"][0]["Tags"]
        try:
            with aws_errors(f"aws {region}: launch template {name}"):
                self._clients.get("ec2", region).create_launch_template(
                    LaunchTemplateName=name,
                    LaunchTemplateData=data,
                    ClientToken=hashlib.sha256(f"{region} {name}".encode()).hexdigest(),
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
                )
        except ProviderError as error:
            if code_of(error.__cause__) != "InvalidLaunchTemplateName.AlreadyExistsException":
                raise
        return name

    def _root_device(self, region: str) -> str:
        if region not in self._roots:
            image = self._config.regions[region].image
            with aws_errors(f"aws {region}: image {image}"):
                found = self._clients.get("ec2", region).describe_images(ImageIds=[image])["Images"]
            if not found:
                raise RefusedError(
                    f"aws {region}: image {image} is not there, or not shared with this account: set `image`"
                )
            self._roots[region] = found[0]["RootDeviceName"]
        return self._roots[region]


USER_DATA_BYTES = 16384  # the most that EC2 takes


def market_options(max_price_usd_hour: float | None) -> dict[str, Any]:
    """One-time spot: what is interrupted is terminated, and no request stays behind that rents again."""
    spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if max_price_usd_hour is not None:
        spot["MaxPrice"] = f"{max_price_usd_hour:.6f}"
    return {"MarketType": "spot", "SpotOptions": spot}


_BATCH = 500
_ID = re.compile(r"\bi-[0-9a-f]+\b")
_NEVER_WAS = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")


def terminate(clients: Clients, region: str, ids: Sequence[str], is_new: Callable[[str], bool]) -> None:
    """End instances; those that EC2 does not know are no error, unless new. Raises ProviderError."""
    doing = f"aws {region}: end of instances"
    for batch in batches(ids, _BATCH):
        left = list(batch)
        while left:
            try:
                with aws_errors(doing):
                    clients.get("ec2", region).terminate_instances(InstanceIds=left)
                break
            except ProviderError as error:
                if code_of(error.__cause__) not in _NEVER_WAS:
                    raise
                # One unknown id refuses the whole batch.
                unknown = set(_ID.findall(str(error.__cause__))) & set(left) or set(left[:1])
                hidden = sorted(name for name in unknown if is_new(name))
                if hidden:
                    raise ProviderError(f"{doing}: {hidden[0]} is not visible yet: try again") from error
                left = [name for name in left if name not in unknown]


# Instances as EC2 describes them, as the scheduler wants them.


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
