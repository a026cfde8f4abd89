"""RunInstances: from a wish to instances, or to the refusal that AWS would give."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deploy.emulator.aws.account import Account
from deploy.emulator.aws.config import region_of
from deploy.emulator.aws.errors import AwsError, invalid, refuse_dry_run
from deploy.emulator.aws.records import Ec2Instance, SpotRequest
from deploy.emulator.aws.wishes import Wish, merged, resolve
from deploy.emulator.aws.world import Ec2World
from deploy.emulator.market import Pool
from deploy.emulator.records import Volume


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
