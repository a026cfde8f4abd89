"""Instances of an emulated EC2: launching, describing, ending them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from moto.core.models import DEFAULT_ACCOUNT_ID

from deploy.emulator.aws import wire
from deploy.emulator.aws.account import Account
from deploy.emulator.aws.launching import Launcher
from deploy.emulator.aws.wire import AwsError, invalid, not_found, refuse_dry_run
from deploy.emulator.aws.world import STATES, Ec2Instance, Ec2World, SpotRequest

_T = TypeVar("_T")
_Look = Callable[[_T], str | None]

_INSTANCE: dict[str, _Look[Ec2Instance]] = {
    "instance-id": lambda one: one.instance_id,
    "instance-state-name": lambda one: one.state,
    "instance-lifecycle": lambda one: "spot" if one.spot else None,
}
_REQUEST: dict[str, _Look[SpotRequest]] = {
    "spot-instance-request-id": lambda one: one.request_id,
    "status-code": lambda one: one.status,
}


def instances(found: Iterable[Ec2Instance], filters: list[dict[str, Any]]) -> list[Ec2Instance]:
    """Instances that match the filters. Raises AwsError."""
    tags = {one["Name"]: _tag(one["Name"]) for one in filters if one["Name"].startswith("tag:")}
    return _matching(found, filters, _INSTANCE | tags)


def requests(found: Iterable[SpotRequest], filters: list[dict[str, Any]]) -> list[SpotRequest]:
    """Spot requests that match the filters. Raises AwsError."""
    return _matching(found, filters, _REQUEST)


def _tag(name: str) -> _Look[Ec2Instance]:
    key = name.removeprefix("tag:")
    return lambda one: one.tags.get(key)


def _matching(found: Iterable[_T], filters: list[dict[str, Any]], looks: dict[str, _Look[_T]]) -> list[_T]:
    for one in filters:
        if one["Name"] not in looks:
            raise invalid(f"The filter '{one['Name']}' is invalid")
    tests = [(looks[one["Name"]], one.get("Values", [])) for one in filters]
    return [item for item in found if all(_matches(look(item), patterns) for look, patterns in tests)]


def _matches(value: str | None, patterns: list[str]) -> bool:
    # [ has a meaning for fnmatch and none for AWS.
    return value is not None and any(fnmatchcase(value, one.replace("[", "[[]")) for one in patterns)


def page(items: list[_T], params: dict[str, Any], default: int) -> tuple[list[_T], str | None]:
    """A page of items and the token of the next one. Raises AwsError."""
    token = params.get("NextToken", "")
    if token and not (token.startswith("page-") and token[5:].isdecimal()):
        raise invalid(f"The token '{token}' is invalid")
    start = int(token[5:]) if token else 0
    size = int(params.get("MaxResults", default))
    end = start + size
    return items[start:end], f"page-{end}" if end < len(items) else None


def state(name: str) -> dict[str, Any]:
    """With its code."""
    return {"Code": STATES[name], "Name": name}


def instance(one: Ec2Instance) -> dict[str, Any]:
    """An entry of DescribeInstances, as far as the provider reads it."""
    about: dict[str, Any] = {
        "InstanceId": one.instance_id,
        "ImageId": one.image_id,
        "State": state(one.state),
        "StateTransitionReason": one.transition,
        "InstanceType": one.pool.instance_type,
        "LaunchTime": one.launched_s,
        "Placement": {"AvailabilityZone": one.pool.zone, "GroupName": "", "Tenancy": "default"},
        "ClientToken": one.client_token,
        "Tags": [{"Key": key, "Value": value} for key, value in one.tags.items()],
    }
    if one.reason is not None:
        about["StateReason"] = {"Code": one.reason[0], "Message": one.reason[1]}
    if one.request is not None:
        about |= {"InstanceLifecycle": "spot", "SpotInstanceRequestId": one.request.request_id}
    if one.state != "terminated":
        about["PrivateIpAddress"] = one.address
    return about


def request(one: SpotRequest) -> dict[str, Any]:
    """An entry of DescribeSpotInstanceRequests."""
    return {
        "SpotInstanceRequestId": one.request_id,
        "State": one.state,
        "Status": {"Code": one.status, "UpdateTime": one.updated_s, "Message": one.status},
        "InstanceId": one.instance_id,
    }


_Params = dict[str, Any]
_Answer = dict[str, Any]


class InstanceActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._launcher = Launcher(world, account)
        self._kept: dict[str, tuple[tuple[Any, ...], wire.Ready]] = {}
        """XML of instances, with what it was made from."""
        self.table: dict[tuple[str, str], Callable[[str, _Params], _Answer]] = {
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "DescribeInstances"): self._describe_instances,
            ("ec2", "TerminateInstances"): self._terminate_instances,
        }

    def _run_instances(self, region: str, params: _Params) -> _Answer:
        return self._reservations([self._launcher.run_instances(region, params)])[0]

    def _describe_instances(self, region: str, params: _Params) -> _Answer:
        ids = params.get("InstanceIds", [])
        refuse_dry_run(params)
        found = self._visible(region, ids) if ids else self._world.described(region)
        chosen = instances(found, params.get("Filters", []))
        part, token = page(chosen, params, len(chosen) or 1)
        return {"Reservations": self._reservations(part), "NextToken": token}

    def _reservations(self, found: list[Ec2Instance]) -> list[dict[str, Any]]:
        return [
            {
                "ReservationId": one.reservation_id,
                "OwnerId": DEFAULT_ACCOUNT_ID,
                "Groups": [],
                "Instances": [self._xml(one)],
            }
            for one in found
        ]

    def _xml(self, one: Ec2Instance) -> wire.Ready:
        now = (one.state, one.transition, one.launched_s)
        kept = self._kept.get(one.instance_id)
        if kept is None or kept[0] != now:
            kept = (now, wire.Ready(wire.body(wire.structure("Instance"), instance(one))))
            self._kept[one.instance_id] = kept
        return kept[1]

    def _terminate_instances(self, region: str, params: _Params) -> _Answer:
        found = self._visible(region, params.get("InstanceIds", []))
        if not found:
            raise AwsError("MissingParameter", "The request must contain the parameter InstanceId")
        refuse_dry_run(params)
        answer = []
        for one in found:
            before = one.state
            self._world.terminate(one)
            answer.append(
                {
                    "InstanceId": one.instance_id,
                    "CurrentState": state(one.state),
                    "PreviousState": state(before),
                }
            )
        return {"TerminatingInstances": answer}

    def _visible(self, region: str, ids: list[str]) -> list[Ec2Instance]:
        known = {one.instance_id: one for one in self._world.described(region)}
        absent = [name for name in ids if name not in known]
        if absent:
            raise not_found(absent)
        return [known[name] for name in ids]
