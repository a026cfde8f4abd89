"""Instances of an emulated EC2: launching, describing, ending them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models.instance_types import INSTANCE_TYPES

from spotweave.deploy.emulator.aws import wire
from spotweave.deploy.emulator.aws.wire import (
    Account,
    AwsError,
    ImageConfig,
    Json,
    invalid,
    not_found,
    refuse_dry_run,
)
from spotweave.deploy.emulator.aws.world import STATES, Ec2Instance, Ec2World, SpotRequest
from spotweave.deploy.emulator.world import Pool, Volume

_MAX_USER_DATA = 16384


class Launcher:
    """Launches one instance at a time. The same token gives the same answer; with other parameters, none."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._tokens: dict[tuple[str, str], tuple[str, Ec2Instance]] = {}

    def run_instances(self, region: str, params: Json) -> Ec2Instance:
        """A new instance, or the one that this client token gave before. Raises AwsError."""
        token = params.get("ClientToken", "")
        if not token:
            return self._run(region, params, token)
        about = json.dumps({**params, "DryRun": None}, sort_keys=True, default=str)
        if (region, token) not in self._tokens:
            self._tokens[region, token] = (about, self._run(region, params, token))
        known, made = self._tokens[region, token]
        if known != about:
            raise AwsError(
                "IdempotentParameterMismatch",
                f"Arguments on this idempotent request are inconsistent with arguments used in previous "
                f"request(s) with the client token {token}.",
            )
        return made

    def _run(self, region: str, params: Json, token: str) -> Ec2Instance:
        given, tags = dict(params), list(params.get("TagSpecifications", []))
        if "LaunchTemplate" in given:
            base = self._account.template(region, given["LaunchTemplate"])
            given, tags = {**base, **given}, [*base.get("TagSpecifications", []), *tags]
        image, instance_type = self._image(region, given), given.get("InstanceType", "m1.small")
        self._account.require(region, given)
        options = given.get("InstanceMarketOptions", {}).get("SpotOptions", {})
        spot = given.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
        limit, user_data = _max_price(options.get("MaxPrice")), _user_data(given.get("UserData"))
        if spot and options.get("InstanceInterruptionBehavior", "terminate") != "terminate":
            raise AwsError("UnsupportedOperation", "The emulator does not play what is stopped by EC2.")
        zone = given.get("Placement", {}).get("AvailabilityZone")
        if "SubnetId" in given:
            zone = self._account.zone_of(region, given["SubnetId"])
        pool = self._pool(region, instance_type, zone)
        top = pool.on_demand_usd_hour if limit is None else limit
        refuse_dry_run(params)
        self._require_room(pool, top, spot=spot)
        world, faults, now_s = self._world, self._world.faults, self._world.now_s()
        reservation, name = world.new_id("r"), world.new_id("i")
        request = SpotRequest(f"sir-{world.new_id('x')[-8:]}", name, updated_s=now_s) if spot else None
        instance = Ec2Instance(
            instance_id=name,
            region=region,
            pool=pool,
            spot=spot,
            reservation_id=reservation,
            client_token=token,
            image_id=image.image_id,
            address=world.machines.address({one.address for one in world.living()}),
            user_data=user_data,
            tags={
                tag["Key"]: tag.get("Value", "")
                for part in tags
                if part["ResourceType"] == "instance"
                for tag in part.get("Tags", [])
            },
            launched_s=now_s,
            first_seen_s=now_s + faults.config.describe_delay_s,
            volumes=self._volumes(image, given.get("BlockDeviceMappings", []), now_s),
            max_usd_hour=top if spot else 0.0,
            request=request,
            dies=faults.strikes("launch death", faults.config.launch_death),
        )
        world.add(instance)
        return instance

    def _image(self, region: str, given: Json) -> ImageConfig:
        image_id, instance_type = given.get("ImageId"), given.get("InstanceType", "m1.small")
        if not image_id:
            raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
        if instance_type not in INSTANCE_TYPES:
            raise invalid(f"Invalid value '{instance_type}' for InstanceType.")
        image = self._account.image(image_id)
        supported = INSTANCE_TYPES[instance_type]["ProcessorInfo"]["SupportedArchitectures"]
        if image.architecture not in supported:
            raise invalid(
                f"The architecture '{','.join(supported)}' of the specified instance type does not match the "
                f"architecture '{image.architecture}' of the specified AMI."
            )
        return image

    def _pool(self, region: str, instance_type: str, zone: str | None) -> Pool:
        """Find the pool; without a zone, the first one configured. Raises AwsError."""
        of_type = [
            pool for pool in self._world.market.of_region(region) if pool.instance_type == instance_type
        ]
        if zone is not None and zone not in self._account.zone_ids(region):
            raise invalid(f"Invalid availability zone: [{zone}]")
        found = [pool for pool in of_type if zone in (None, pool.zone)]
        if not found:
            others = ", ".join(pool.zone for pool in of_type)
            raise AwsError(
                "Unsupported",
                f"Your requested instance type ({instance_type}) is not supported in your requested "
                f"Availability Zone ({zone or region}). Please retry your request by not specifying an "
                f"Availability Zone or choosing {others or 'another region'}.",
            )
        return found[0]

    def _require_room(self, pool: Pool, top_usd_hour: float, *, spot: bool) -> None:
        world, now_s = self._world, self._world.clock.now()
        faults = world.faults
        if faults.strikes("launch failure", faults.config.launch_failure):
            raise _no_capacity(pool)
        allowed = world.config.limit(spot=spot, instance_type=pool.instance_type)
        if world.used_vcpus(pool.region, pool.instance_type, spot=spot) + pool.vcpus > allowed:
            if spot:
                raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
            raise AwsError(
                "VcpuLimitExceeded",
                f"You have requested more vCPU capacity than your current vCPU limit of {allowed} allows for "
                "the instance bucket that the specified instance type belongs to. Please visit "
                "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
            )
        most = pool.spot_capacity if spot else pool.on_demand_capacity
        if world.used(pool, spot=spot) >= most or (spot and not world.market.has_spot(pool, now_s)):
            raise _no_capacity(pool)
        price = world.market.price(pool, now_s)
        if spot and price > top_usd_hour:
            raise AwsError(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {top_usd_hour} is lower than the minimum required Spot request "
                f"fulfillment price of {price}.",
            )

    def _volumes(self, image: ImageConfig, given: list[Json], now_s: float) -> list[Volume]:
        disks = {disk["DeviceName"]: disk.get("Ebs", {}) for disk in given if "NoDevice" not in disk}
        disks.setdefault(image.root_device, {})
        return [
            Volume(
                volume_id=self._world.new_id("vol"),
                size_gib=int(ebs.get("VolumeSize", image.root_gib)),
                delete_on_termination=bool(ebs.get("DeleteOnTermination", True)),
                created_s=now_s,
            )
            for ebs in disks.values()
        ]


def _max_price(text: str | None) -> float | None:
    if text is None:
        return None
    value = float(text)
    if value < 0.001:
        raise invalid(f"Invalid value '{text}' for MaxPrice: it must be more than USD 0.001")
    return value


def _user_data(text: str | None) -> bytes:
    content = base64.b64decode(text or "", validate=True)
    if len(content) > _MAX_USER_DATA:
        raise invalid(f"User data is limited to {_MAX_USER_DATA} bytes")
    return content


def _no_capacity(pool: Pool) -> AwsError:
    return AwsError(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you "
        f"requested ({pool.zone}). Our system will be working on provisioning additional capacity.",
        500,
    )


_T = TypeVar("_T")
_Look = Callable[[_T], str | None]

_INSTANCE: dict[str, _Look[Ec2Instance]] = {
    "instance-id": lambda one: one.instance_id,
    "instance-state-name": lambda one: one.state,
    "instance-lifecycle": lambda one: "spot" if one.spot else None,
}
REQUEST: dict[str, _Look[SpotRequest]] = {
    "spot-instance-request-id": lambda one: one.request_id,
    "status-code": lambda one: one.status,
}


def instances(found: Iterable[Ec2Instance], filters: list[dict[str, Any]]) -> list[Ec2Instance]:
    """Instances that match the filters. Raises AwsError."""
    tags = {one["Name"]: _tag(one["Name"]) for one in filters if one["Name"].startswith("tag:")}
    return matching(found, filters, _INSTANCE | tags)


def _tag(name: str) -> _Look[Ec2Instance]:
    key = name.removeprefix("tag:")
    return lambda one: one.tags.get(key)


def matching(found: Iterable[_T], filters: list[dict[str, Any]], looks: dict[str, _Look[_T]]) -> list[_T]:
    """What all filters let through, of which each is about something in `looks`. Raises AwsError."""
    for one in filters:
        if one["Name"] not in looks:
            raise invalid(f"The filter '{one['Name']}' is invalid")
    tests = [(looks[one["Name"]], one.get("Values", [])) for one in filters]
    return [item for item in found if all(_matches(look(item), patterns) for look, patterns in tests)]


def _matches(value: str | None, patterns: list[str]) -> bool:
    # [ has a meaning for fnmatch and none for AWS.
    return value is not None and any(fnmatchcase(value, one.replace("[", "[[]")) for one in patterns)


def page(items: list[_T], params: Json, default: int = 1000) -> tuple[list[_T], str | None]:
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


class InstanceActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._launcher = Launcher(world, account)
        self._kept: dict[str, tuple[tuple[Any, ...], wire.Ready]] = {}
        """XML of instances, with what it was made from."""
        self.table: dict[tuple[str, str], wire.Action] = {
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "DescribeInstances"): self._describe_instances,
            ("ec2", "TerminateInstances"): self._terminate_instances,
        }

    def _run_instances(self, region: str, params: Json) -> Json:
        return self._reservations([self._launcher.run_instances(region, params)])[0]

    def _describe_instances(self, region: str, params: Json) -> Json:
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

    def _terminate_instances(self, region: str, params: Json) -> Json:
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
