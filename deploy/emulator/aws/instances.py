"""Instances of an emulated EC2: launching, describing, ending them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from moto.core.models import DEFAULT_ACCOUNT_ID

from deploy.emulator.aws import wire
from deploy.emulator.aws.account import Account
from deploy.emulator.aws.launching import Launcher
from deploy.emulator.aws.wire import AwsError, invalid, not_found, refuse_dry_run
from deploy.emulator.aws.world import STATES, Ec2Instance, Ec2World, SpotRequest

# Instances and spot requests as EC2 describes them, with filters and pages.

_T = TypeVar("_T")
_Look = Callable[[_T], str | Sequence[str] | None]

_INSTANCE: dict[str, _Look[Ec2Instance]] = {
    "instance-id": lambda one: one.instance_id,
    "instance-state-name": lambda one: one.state,
    "instance-state-code": lambda one: str(STATES[one.state]),
    "instance-type": lambda one: one.pool.instance_type,
    "instance-lifecycle": lambda one: "spot" if one.spot else None,
    "spot-instance-request-id": lambda one: one.request.request_id if one.request else None,
    "availability-zone": lambda one: one.pool.zone,
    "client-token": lambda one: one.client_token,
    "image-id": lambda one: one.image_id,
    "subnet-id": lambda one: one.subnet_id,
    "vpc-id": lambda one: one.vpc_id,
    "private-ip-address": lambda one: one.address,
    "reservation-id": lambda one: one.reservation_id,
    "state-reason-code": lambda one: one.reason[0] if one.reason else None,
}
_REQUEST: dict[str, _Look[SpotRequest]] = {
    "spot-instance-request-id": lambda one: one.request_id,
    "state": lambda one: one.state,
    "status-code": lambda one: one.status,
    "instance-id": lambda one: one.instance_id,
}


def instances(found: Iterable[Ec2Instance], filters: list[dict[str, Any]]) -> list[Ec2Instance]:
    """Those that match. Raises AwsError."""
    return _matching(found, filters, _INSTANCE)


def requests(found: Iterable[SpotRequest], filters: list[dict[str, Any]]) -> list[SpotRequest]:
    """Those that match. Raises AwsError."""
    return _matching(found, filters, _REQUEST)


def _matching(found: Iterable[_T], filters: list[dict[str, Any]], looks: dict[str, _Look[_T]]) -> list[_T]:
    for one in filters:
        name = one["Name"]
        if name not in looks and name != "tag-key" and not name.startswith("tag:"):
            raise invalid(f"The filter '{name}' is invalid")
    tests = [(_look(one["Name"], looks), one.get("Values", [])) for one in filters]
    return [item for item in found if all(_matches(look(item), patterns) for look, patterns in tests)]


def _look(name: str, looks: dict[str, _Look[_T]]) -> _Look[_T]:
    if name == "tag-key":
        return lambda one: list(getattr(one, "tags", {}))
    if name.startswith("tag:"):
        key = name.removeprefix("tag:")
        return lambda one: getattr(one, "tags", {}).get(key)
    return looks[name]


def _matches(value: str | Sequence[str] | None, patterns: list[str]) -> bool:
    if value is None:
        return False
    values = [value] if isinstance(value, str) else value
    # [ has a meaning for fnmatch and none for AWS.
    return any(fnmatchcase(item, pattern.replace("[", "[[]")) for item in values for pattern in patterns)


def page(items: list[_T], params: dict[str, Any], default: int) -> tuple[list[_T], str | None]:
    """A page of items and the token of the next one. Raises AwsError."""
    token = params.get("NextToken", "")
    if token and not (token.startswith("page-") and token[5:].isdecimal()):
        raise invalid(f"The token '{token}' is invalid")
    start = int(token[5:]) if token else 0
    size = int(params.get("MaxResults", default))
    end = start + size
    return items[start:end], f"page-{end}" if end < len(items) else None


def tag_set(tags: dict[str, str]) -> list[dict[str, str]]:
    """As EC2 lists tags."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def state(name: str) -> dict[str, Any]:
    """With its code."""
    return {"Code": STATES[name], "Name": name}


def instance(one: Ec2Instance) -> dict[str, Any]:
    """An entry of DescribeInstances."""
    gone = one.state == "terminated"
    about: dict[str, Any] = {
        "InstanceId": one.instance_id,
        "ImageId": one.image_id,
        "State": state(one.state),
        "PrivateDnsName": "" if gone else f"ip-{one.address.replace('.', '-')}.ec2.internal",
        "PublicDnsName": "",
        "StateTransitionReason": one.transition,
        "AmiLaunchIndex": 0,
        "InstanceType": one.pool.instance_type,
        "LaunchTime": one.launched_s,
        "Placement": {"AvailabilityZone": one.pool.zone, "GroupName": "", "Tenancy": "default"},
        "Monitoring": {"State": "disabled"},
        "Architecture": one.architecture,
        "ClientToken": one.client_token,
        "EbsOptimized": False,
        "EnaSupport": True,
        "Hypervisor": "xen",
        "VirtualizationType": "hvm",
        "RootDeviceName": one.root_device,
        "RootDeviceType": "ebs",
        "SecurityGroups": [{"GroupId": group, "GroupName": name} for group, name in one.groups],
        "Tags": tag_set(one.tags),
        "HibernationOptions": {"Configured": one.hibernates},
        "MetadataOptions": {"State": "applied", "HttpTokens": "required", "HttpEndpoint": "enabled"},
    }
    if one.reason is not None:
        about["StateReason"] = {"Code": one.reason[0], "Message": one.reason[1]}
    if one.spot and one.request is not None:
        about |= {"InstanceLifecycle": "spot", "SpotInstanceRequestId": one.request.request_id}
    if one.profile_arn is not None:
        about["IamInstanceProfile"] = {"Arn": one.profile_arn, "Id": "AIPAEMULATED0000000000"}
    if not gone:
        about |= {
            "PrivateIpAddress": one.address,
            "SubnetId": one.subnet_id,
            "VpcId": one.vpc_id,
            "BlockDeviceMappings": [
                {
                    "DeviceName": disk.device,
                    "Ebs": {
                        "VolumeId": disk.volume_id,
                        "Status": "attached",
                        "DeleteOnTermination": disk.delete_on_termination,
                        "AttachTime": disk.created_s,
                    },
                }
                for disk in one.volumes
            ],
        }
    return about


class Reservations:
    """Reservations as XML, with what has not changed since the last time kept."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[Any, ...], wire.Ready]] = {}

    def xml(self, one: Ec2Instance) -> wire.Ready:
        """An instance."""
        now = (
            one.state,
            one.transition,
            one.launched_s,
            tuple(one.tags.items()),
            one.request.request_id if one.request else None,
        )
        kept = self._kept.get(one.instance_id)
        if kept is None or kept[0] != now:
            shape = wire.structure("Instance")
            kept = (now, wire.Ready(wire.body(shape, instance(one))))
            self._kept[one.instance_id] = kept
        return kept[1]

    def of(self, found: list[Ec2Instance]) -> list[dict[str, Any]]:
        """Grouped as they were launched."""
        groups: dict[str, list[Ec2Instance]] = {}
        for one in found:
            groups.setdefault(one.reservation_id, []).append(one)
        return [
            {
                "ReservationId": name,
                "OwnerId": DEFAULT_ACCOUNT_ID,
                "Groups": [],
                "Instances": [self.xml(one) for one in members],
            }
            for name, members in groups.items()
        ]


def request(one: SpotRequest) -> dict[str, Any]:
    """An entry of DescribeSpotInstanceRequests."""
    return {
        "SpotInstanceRequestId": one.request_id,
        "SpotPrice": f"{one.max_usd_hour:.6f}",
        "Type": "persistent" if one.persistent else "one-time",
        "State": one.state,
        "Status": {"Code": one.status, "UpdateTime": one.updated_s, "Message": one.status},
        "CreateTime": one.created_s,
        "InstanceId": one.instance_id,
        "InstanceInterruptionBehavior": one.behaviour,
        "ProductDescription": "Linux/UNIX",
        "Tags": tag_set(one.tags),
    }


# Instances: the actions that change and show what runs.

_Params = dict[str, Any]
_Answer = dict[str, Any]


class InstanceActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._launcher = Launcher(world, account)
        self._reservations = Reservations()
        self.table: dict[tuple[str, str], Callable[[str, _Params], _Answer]] = {
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "DescribeInstances"): self._describe_instances,
            ("ec2", "TerminateInstances"): self._terminate_instances,
        }

    def _run_instances(self, region: str, params: _Params) -> _Answer:
        made = self._launcher.run_instances(region, params)
        return self._reservations.of(made)[0]

    def _describe_instances(self, region: str, params: _Params) -> _Answer:
        ids = params.get("InstanceIds", [])
        if ids and "MaxResults" in params:
            raise AwsError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        refuse_dry_run(params)
        found = self._visible(region, ids) if ids else self._world.described(region)
        chosen = instances(found, params.get("Filters", []))
        part, token = page(chosen, params, len(chosen) or 1)
        return {"Reservations": self._reservations.of(part), "NextToken": token}

    def _terminate_instances(self, region: str, params: _Params) -> _Answer:
        return {"TerminatingInstances": self._change(region, params, self._world.terminate)}

    def _change(
        self, region: str, params: _Params, act: Callable[[Ec2Instance], None]
    ) -> list[dict[str, Any]]:
        found = self._visible(region, params.get("InstanceIds", []))
        if not found:
            raise AwsError("MissingParameter", "The request must contain the parameter InstanceId")
        refuse_dry_run(params)
        answer = []
        for one in found:
            before = one.state
            act(one)
            answer.append(
                {
                    "InstanceId": one.instance_id,
                    "CurrentState": state(one.state),
                    "PreviousState": state(before),
                }
            )
        return answer

    def _visible(self, region: str, ids: list[str]) -> list[Ec2Instance]:
        known = {one.instance_id: one for one in self._world.described(region)}
        absent = [name for name in ids if name not in known]
        if absent:
            raise not_found(absent)
        return [known[name] for name in ids]
