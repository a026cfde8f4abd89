"""RunInstances: from a request to an instance, or to the refusal that AWS would give."""

from __future__ import annotations

import base64
import json
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from deploy.emulator.aws.account import Account
from deploy.emulator.aws.config import ImageConfig, region_of
from deploy.emulator.aws.wire import AwsError, invalid, refuse_dry_run
from deploy.emulator.aws.world import Ec2Instance, Ec2World, SpotRequest
from deploy.emulator.market import Pool
from deploy.emulator.world import Volume

_MAX_USER_DATA = 16384
_Params = dict[str, Any]


class Launcher:
    """Launches one instance at a time. The same token gives the same answer; with other parameters, none."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._tokens: dict[tuple[str, str], tuple[str, Ec2Instance]] = {}

    def run_instances(self, region: str, params: _Params) -> Ec2Instance:
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

    def _run(self, region: str, params: _Params, token: str) -> Ec2Instance:
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
        top = pool.config.on_demand_usd_hour if limit is None else limit
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

    def _image(self, region: str, given: _Params) -> ImageConfig:
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
        if zone is not None and (region_of(zone) != region or zone not in self._account.zone_ids(region)):
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
        """Raises AwsError if one more cannot be launched there now."""
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

    def _volumes(self, image: ImageConfig, given: list[_Params], now_s: float) -> list[Volume]:
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
