"""RunInstances: from a wish to instances, or to the refusal that AWS would give."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from deploy.emulator.aws.account import Account, Image
from deploy.emulator.aws.config import region_of
from deploy.emulator.aws.wire import AwsError, invalid, refuse_dry_run
from deploy.emulator.aws.world import Ec2Instance, Ec2World, SpotRequest
from deploy.emulator.market import Pool
from deploy.emulator.world import Behaviour, Volume

# What a launch asks for, checked as EC2 checks it before it looks for room.

_MAX_USER_DATA = 16384


@dataclass(frozen=True)
class Wish:
    """One kind of instance that is asked for, all parameters resolved but the pool."""

    region: str
    image: Image
    instance_type: str
    spot: bool
    max_usd_hour: float | None
    behaviour: Behaviour
    persistent: bool
    hibernates: bool
    user_data: bytes
    profile_arn: str | None
    group_ids: tuple[str, ...]
    group_names: tuple[str, ...]
    subnet_id: str | None
    zone: str | None
    disks: tuple[dict[str, Any], ...]
    tags: dict[str, dict[str, str]]
    client_token: str = ""


def resolve(account: Account, region: str, given: dict[str, Any]) -> Wish:
    """What RunInstances parameters ask for. Raises AwsError."""
    image_id, instance_type = given.get("ImageId"), given.get("InstanceType", "m1.small")
    if not image_id:
        raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
    if instance_type not in INSTANCE_TYPES:
        raise invalid(f"Invalid value '{instance_type}' for InstanceType.")
    image = account.image(region, image_id)
    supported = INSTANCE_TYPES[instance_type]["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture not in supported:
        raise invalid(
            f"The architecture '{','.join(supported)}' of the specified instance type does not match the "
            f"architecture '{image.architecture}' of the specified AMI."
        )
    account.key_pair(region, given.get("KeyName"))
    market = given.get("InstanceMarketOptions", {})
    options = market.get("SpotOptions", {})
    hibernates = bool(given.get("HibernationOptions", {}).get("Configured"))
    behaviour = options.get("InstanceInterruptionBehavior", "hibernate" if hibernates else "terminate")
    persistent = options.get("SpotInstanceType", "one-time") == "persistent"
    spot = market.get("MarketType") == "spot"
    if spot and behaviour != "terminate" and not persistent:
        raise invalid(f"The interruption behavior '{behaviour}' needs a persistent Spot request.")
    network = (given.get("NetworkInterfaces") or [{}])[0]
    return Wish(
        region=region,
        image=image,
        instance_type=instance_type,
        spot=spot,
        max_usd_hour=max_price(options.get("MaxPrice")),
        behaviour=behaviour,
        persistent=persistent,
        hibernates=hibernates,
        user_data=_user_data(given.get("UserData")),
        profile_arn=account.profile_arn(given.get("IamInstanceProfile", {})),
        group_ids=tuple(given.get("SecurityGroupIds", []) or network.get("Groups", [])),
        group_names=tuple(given.get("SecurityGroups", [])),
        subnet_id=given.get("SubnetId") or network.get("SubnetId"),
        zone=given.get("Placement", {}).get("AvailabilityZone"),
        disks=tuple(given.get("BlockDeviceMappings", [])),
        tags=_tags(given.get("TagSpecifications", [])),
    )


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A launch template with a request over it; tags are joined."""
    tags = [*base.get("TagSpecifications", []), *over.get("TagSpecifications", [])]
    return {**base, **over, "TagSpecifications": tags}


def _tags(specifications: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for specification in specifications:
        tags = found.setdefault(specification["ResourceType"], {})
        tags.update({tag["Key"]: tag.get("Value", "") for tag in specification.get("Tags", [])})
    return found


def max_price(text: str | None) -> float | None:
    """In USD per hour. Raises AwsError."""
    if text is None:
        return None
    value = float(text)
    if value < 0.001:
        raise invalid(f"Invalid value '{text}' for MaxPrice: it must be more than USD 0.001")
    return value


def _user_data(text: str | None) -> bytes:
    try:
        content = base64.b64decode(text or "", validate=True)
    except binascii.Error as error:
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from error
    if len(content) > _MAX_USER_DATA:
        raise invalid(f"User data is limited to {_MAX_USER_DATA} bytes")
    return content


class Launcher:
    """Launches into a world."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._tokens: dict[tuple[str, str], tuple[str, list[Ec2Instance]]] = {}

    def run_instances(self, region: str, params: dict[str, Any]) -> list[Ec2Instance]:
        """New instances of one reservation, or those that this client token gave before."""
        token = params.get("ClientToken", "")
        return self._once(region, token, params, lambda: self._run_instances(region, params, token))

    def _run_instances(self, region: str, params: dict[str, Any], token: str) -> list[Ec2Instance]:
        given = dict(params)
        if "LaunchTemplate" in given:
            given = merged(self._account.template(region, given["LaunchTemplate"]), given)
        wish = replace(resolve(self._account, region, given), client_token=token)
        least, most = int(params.get("MinCount", 1)), int(params.get("MaxCount", 1))
        if not 1 <= least <= most:
            raise invalid(f"MinCount {least} and MaxCount {most}: expected 1 <= MinCount <= MaxCount")
        pools = self._pools(wish)
        refuse_dry_run(params)
        refusal: AwsError | None = None
        for pool in pools:
            try:
                count = self._room(wish, pool, least, most)
            except AwsError as error:
                refusal = refusal or error
                continue
            reservation = self._world.new_id("r")
            return [self._launch(wish, pool, reservation) for _ in range(count)]
        assert refusal is not None
        raise refusal

    # What is asked for.

    def _pools(self, wish: Wish) -> list[Pool]:
        """Where it may run, in the order of the configuration. Raises AwsError."""
        zone = wish.zone
        if wish.subnet_id is not None:
            zone = self._account.network(wish.region, wish.subnet_id, "").zone
        of_type = [
            pool
            for pool in self._world.market.of_region(wish.region)
            if pool.instance_type == wish.instance_type
        ]
        if zone is not None and (
            region_of(zone) != wish.region or zone not in self._account.zone_ids(wish.region)
        ):
            raise invalid(f"Invalid availability zone: [{zone}]")
        found = [pool for pool in of_type if zone in (None, pool.zone)]
        if not found:
            others = ", ".join(pool.zone for pool in of_type)
            raise AwsError(
                "Unsupported",
                f"Your requested instance type ({wish.instance_type}) is not supported in your requested "
                f"Availability Zone ({zone or wish.region}). Please retry your request by not specifying an "
                f"Availability Zone or choosing {others or 'another region'}.",
            )
        return found

    # Whether there is room.

    def _free(self, pool: Pool, spot: bool, now_s: float) -> int:
        most = pool.spot_capacity if spot else pool.on_demand_capacity
        if spot and not self._world.market.has_spot(pool, now_s):
            return 0
        return most - self._world.used(pool, spot=spot)

    def _room(self, wish: Wish, pool: Pool, least: int, most: int) -> int:
        """How many of those asked for can be launched there now. Raises AwsError if too few."""
        world = self._world
        faults = world.faults
        if faults.strikes("launch failure", faults.config.launch_failure):
            raise _no_capacity(pool)
        allowed = world.config.limit(spot=wish.spot, instance_type=wish.instance_type)
        used = world.used_vcpus(wish.region, wish.instance_type, spot=wish.spot)
        fits = (allowed - used) // pool.vcpus
        if fits < least:
            if wish.spot:
                raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
            raise AwsError(
                "VcpuLimitExceeded",
                f"You have requested more vCPU capacity than your current vCPU limit of {allowed} allows for "
                "the instance bucket that the specified instance type belongs to. Please visit "
                "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
            )
        now_s = world.clock.now()
        free = self._free(pool, wish.spot, now_s)
        if free < least:
            raise _no_capacity(pool)
        if wish.spot:
            price = world.market.price(pool, now_s)
            offered = wish.max_usd_hour if wish.max_usd_hour is not None else pool.config.on_demand_usd_hour
            if price > offered:
                raise AwsError(
                    "SpotMaxPriceTooLow",
                    f"Your Spot request price of {offered} is lower than the minimum required Spot request "
                    f"fulfillment price of {price}.",
                )
        return min(most, fits, free)

    def _launch(self, wish: Wish, pool: Pool, reservation: str) -> Ec2Instance:
        world = self._world
        now_s = world.now_s()
        network = self._account.network(wish.region, wish.subnet_id, pool.zone)
        groups = self._account.groups(
            wish.region, network.vpc_id, list(wish.group_ids), list(wish.group_names)
        )
        name = world.new_id("i")
        request = None
        top = wish.max_usd_hour if wish.max_usd_hour is not None else pool.config.on_demand_usd_hour
        if wish.spot:
            request = SpotRequest(
                request_id=f"sir-{world.new_id('x')[-8:]}",
                instance_id=name,
                created_s=now_s,
                persistent=wish.persistent,
                max_usd_hour=top,
                behaviour=wish.behaviour,
                tags=dict(wish.tags.get("spot-instances-request", {})),
                updated_s=now_s,
            )
        faults = world.faults
        instance = Ec2Instance(
            instance_id=name,
            region=wish.region,
            pool=pool,
            spot=wish.spot,
            reservation_id=reservation,
            client_token=wish.client_token,
            image_id=wish.image.image_id,
            architecture=wish.image.architecture,
            root_device=wish.image.root_device,
            subnet_id=network.subnet_id,
            vpc_id=network.vpc_id,
            groups=groups,
            profile_arn=wish.profile_arn,
            address=world.machines.address({one.address for one in world.living()}),
            user_data=wish.user_data,
            tags=dict(wish.tags.get("instance", {})),
            hibernates=wish.hibernates,
            launched_s=now_s,
            first_seen_s=now_s + faults.config.describe_delay_s,
            volumes=self._volumes(wish, pool, name, now_s),
            max_usd_hour=top if wish.spot else 0.0,
            behaviour=wish.behaviour if wish.spot else "terminate",
            request=request,
            dies=faults.strikes("launch death", faults.config.launch_death),
        )
        world.add(instance)
        return instance

    def _volumes(self, wish: Wish, pool: Pool, name: str, now_s: float) -> list[Volume]:
        disks = {disk["DeviceName"]: disk.get("Ebs", {}) for disk in wish.disks if "NoDevice" not in disk}
        disks.setdefault(wish.image.root_device, {})
        return [
            Volume(
                volume_id=self._world.new_id("vol"),
                device=device,
                size_gib=int(ebs.get("VolumeSize", wish.image.root_gib)),
                kind=ebs.get("VolumeType", "gp3"),
                encrypted=bool(ebs.get("Encrypted", False)),
                delete_on_termination=bool(ebs.get("DeleteOnTermination", True)),
                tags=dict(wish.tags.get("volume", {})),
                zone=pool.zone,
                created_s=now_s,
                instance_id=name,
            )
            for device, ebs in disks.items()
        ]

    def _once(
        self, region: str, token: str, params: dict[str, Any], make: Callable[[], list[Ec2Instance]]
    ) -> list[Ec2Instance]:
        """The same token gives the same answer; with other parameters, none."""
        if not token:
            return make()
        about = json.dumps({**params, "DryRun": None}, sort_keys=True, default=str)
        known = self._tokens.get((region, token))
        if known is None:
            made = make()
            self._tokens[region, token] = (about, made)
            return made
        if known[0] != about:
            raise AwsError(
                "IdempotentParameterMismatch",
                f"Arguments on this idempotent request are inconsistent with arguments used in previous "
                f"request(s) with the client token {token}.",
            )
        return known[1]


def _no_capacity(pool: Pool) -> AwsError:
    return AwsError(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you "
        f"requested ({pool.zone}). Our system will be working on provisioning additional capacity.",
        500,
    )
