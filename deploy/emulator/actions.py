"""What the emulator answers itself, because moto has it not, or not truly. moto answers the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from deploy.emulator import describing
from deploy.emulator.account import Account
from deploy.emulator.describing import Reservations, page, state
from deploy.emulator.errors import AwsError, invalid, not_found
from deploy.emulator.launching import Launcher
from deploy.emulator.market import Pool
from deploy.emulator.records import Instance, SpotRequest, Volume
from deploy.emulator.world import World

_Params = dict[str, Any]
_Answer = dict[str, Any]
_OURS = ("i-", "sir-", "vol-")
PRODUCT = "Linux/UNIX"
_MOST_PRICES = 1000

_SPOT_QUOTAS = {"standard": "L-34B43A08", "g": "L-3819A6DF", "p": "L-7212CCBC", "inf": "L-B5D1601B"}
_ON_DEMAND_QUOTAS = {"standard": "L-1216C47A", "g": "L-DB2E81BA", "p": "L-417A185B", "inf": "L-1945791B"}
"""https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"""


class Actions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: World, account: Account) -> None:
        self._world, self._account = world, account
        self._launcher = Launcher(world, account)
        self._reservations = Reservations()
        self.table: dict[tuple[str, str], Callable[[str, _Params], _Answer]] = {
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "CreateFleet"): self._launcher.create_fleet,
            ("ec2", "DescribeInstances"): self._describe_instances,
            ("ec2", "DescribeInstanceStatus"): self._describe_instance_status,
            ("ec2", "TerminateInstances"): self._terminate_instances,
            ("ec2", "StopInstances"): self._stop_instances,
            ("ec2", "StartInstances"): self._start_instances,
            ("ec2", "DescribeVolumes"): self._describe_volumes,
            ("ec2", "DeleteVolume"): self._delete_volume,
            ("ec2", "DescribeSpotPriceHistory"): self._describe_spot_price_history,
            ("ec2", "DescribeSpotInstanceRequests"): self._describe_spot_instance_requests,
            ("ec2", "CancelSpotInstanceRequests"): self._cancel_spot_instance_requests,
            ("ec2", "RequestSpotInstances"): self._request_spot_instances,
            ("ec2", "GetSpotPlacementScores"): self._get_spot_placement_scores,
            ("ec2", "DescribeInstanceTypeOfferings"): self._describe_instance_type_offerings,
            ("ec2", "CreateTags"): self._create_tags,
            ("ec2", "DeleteTags"): self._delete_tags,
            ("pricing", "GetProducts"): self._get_products,
            ("servicequotas", "GetServiceQuota"): self._get_service_quota,
            ("servicequotas", "ListServiceQuotas"): self._list_service_quotas,
        }

    # Instances.

    def _run_instances(self, region: str, params: _Params) -> _Answer:
        made = self._launcher.run_instances(region, params)
        answer = self._reservations.of(made)[0]
        return answer

    def _describe_instances(self, region: str, params: _Params) -> _Answer:
        ids = params.get("InstanceIds", [])
        if ids and "MaxResults" in params:
            raise AwsError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        _dry(params)
        found = self._visible(region, ids) if ids else self._world.described(region)
        chosen = describing.instances(found, params.get("Filters", []))
        part, token = page(chosen, params, len(chosen) or 1)
        return {"Reservations": self._reservations.of(part), "NextToken": token}

    def _describe_instance_status(self, region: str, params: _Params) -> _Answer:
        ids = params.get("InstanceIds", [])
        found = self._visible(region, ids) if ids else self._world.described(region)
        if not params.get("IncludeAllInstances"):
            found = [one for one in found if one.state == "running"]
        part, token = page(describing.instances(found, params.get("Filters", [])), params, 1000)
        return {
            "InstanceStatuses": [
                {
                    "InstanceId": one.instance_id,
                    "AvailabilityZone": one.pool.zone,
                    "InstanceState": state(one.state),
                    "InstanceStatus": {"Status": "ok" if one.state == "running" else "not-applicable"},
                    "SystemStatus": {"Status": "ok" if one.state == "running" else "not-applicable"},
                }
                for one in part
            ],
            "NextToken": token,
        }

    def _terminate_instances(self, region: str, params: _Params) -> _Answer:
        return {"TerminatingInstances": self._change(region, params, self._world.terminate)}

    def _stop_instances(self, region: str, params: _Params) -> _Answer:
        for one in self._visible(region, params["InstanceIds"]):
            if one.request is not None and not one.request.persistent:
                raise AwsError(
                    "UnsupportedOperation",
                    f"You can't stop the Spot Instance '{one.instance_id}' because it is associated with a "
                    "one-time Spot Instance request. You can only stop Spot Instances associated with "
                    "persistent Spot Instance requests.",
                )
            if params.get("Hibernate") and not one.hibernates:
                raise AwsError(
                    "UnsupportedHibernationConfiguration",
                    f"The instance '{one.instance_id}' was not launched with hibernation configured.",
                )
            _expect(one, "pending", "running", "stopping", "stopped")
        return {"StoppingInstances": self._change(region, params, self._world.stop)}

    def _start_instances(self, region: str, params: _Params) -> _Answer:
        for one in self._visible(region, params["InstanceIds"]):
            _expect(one, "stopped", "pending", "running")
            pool = one.pool
            room = pool.spot_capacity if one.spot else pool.on_demand_capacity
            refused = one.spot and not self._world.market.has_spot(pool, self._world.clock.now())
            if one.state == "stopped" and (refused or self._world.used(pool, spot=one.spot) >= room):
                raise AwsError(
                    "InsufficientInstanceCapacity",
                    f"We currently do not have sufficient {pool.instance_type} capacity in {pool.zone}.",
                    500,
                )

        def start(one: Instance) -> None:
            if one.state == "stopped":
                self._world.start(one)

        return {"StartingInstances": self._change(region, params, start)}

    def _change(self, region: str, params: _Params, act: Callable[[Instance], None]) -> list[dict[str, Any]]:
        found = self._visible(region, params.get("InstanceIds", []))
        if not found:
            raise AwsError("MissingParameter", "The request must contain the parameter InstanceId")
        _dry(params)
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

    def _visible(self, region: str, ids: list[str]) -> list[Instance]:
        known = {one.instance_id: one for one in self._world.described(region)}
        absent = [name for name in ids if name not in known]
        if absent:
            raise not_found(absent)
        return [known[name] for name in ids]

    # Disks and tags.

    def _volumes(self, region: str) -> list[Volume]:
        return [
            disk
            for one in self._world.instances.values()
            if one.region == region
            for disk in one.volumes
            if disk.deleted_s is None
        ]

    def _describe_volumes(self, region: str, params: _Params) -> _Answer:
        found, ids = self._volumes(region), params.get("VolumeIds", [])
        absent = sorted(set(ids) - {disk.volume_id for disk in found})
        if absent:
            raise AwsError("InvalidVolume.NotFound", f"The volume '{absent[0]}' does not exist.")
        chosen = [disk for disk in found if not ids or disk.volume_id in ids]
        part, token = page(describing.volumes(chosen, params.get("Filters", [])), params, 1000)
        return {"Volumes": [describing.volume(disk) for disk in part], "NextToken": token}

    def _delete_volume(self, region: str, params: _Params) -> _Answer:
        name = params["VolumeId"]
        for disk in self._volumes(region):
            if disk.volume_id == name:
                if disk.instance_id is not None:
                    raise AwsError(
                        "VolumeInUse", f"Volume {name} is currently attached to {disk.instance_id}"
                    )
                _dry(params)
                disk.deleted_s = self._world.now_s()
                return {}
        raise AwsError("InvalidVolume.NotFound", f"The volume '{name}' does not exist.")

    def _create_tags(self, region: str, params: _Params) -> _Answer:
        tags = {tag["Key"]: tag.get("Value", "") for tag in params["Tags"]}
        _dry(params)
        theirs = self._of_moto(params)
        if theirs:
            self._account.ec2(region).create_tags(theirs, tags)
        for found in self._tagged(region, params):
            found.update(tags)
        return {}

    def _delete_tags(self, region: str, params: _Params) -> _Answer:
        _dry(params)
        theirs = self._of_moto(params)
        wanted = {tag["Key"]: tag.get("Value") for tag in params.get("Tags", [])}
        if theirs:
            self._account.ec2(region).delete_tags(theirs, wanted)
        for found in self._tagged(region, params):
            for key in list(found):
                if not wanted or (key in wanted and wanted[key] in (None, found[key])):
                    del found[key]
        return {}

    def _of_moto(self, params: _Params) -> list[str]:
        return [name for name in params["Resources"] if not name.startswith(_OURS)]

    def _tagged(self, region: str, params: _Params) -> list[dict[str, str]]:
        """The tags of our own resources. Raises AwsError if one is not there."""
        known: dict[str, dict[str, str]] = {}
        for one in self._world.described(region):
            known[one.instance_id] = one.tags
            if one.request is not None:
                known[one.request.request_id] = one.request.tags
        known |= {disk.volume_id: disk.tags for disk in self._volumes(region)}
        ours = [name for name in params["Resources"] if name.startswith(_OURS)]
        for name in ours:
            if name not in known:
                raise not_found([name]) if name.startswith("i-") else describing.missing("ID", [name])
        return [known[name] for name in ours]

    # Spot.

    def _describe_spot_price_history(self, region: str, params: _Params) -> _Answer:
        now_s = self._world.clock.now()
        start_s = _epoch(params.get("StartTime"), now_s)
        end_s = min(now_s, _epoch(params.get("EndTime"), now_s))
        start_s = min(start_s, end_s)
        filters = {one["Name"]: one.get("Values", []) for one in params.get("Filters", [])}
        types = params.get("InstanceTypes") or filters.pop("instance-type", None)
        products = params.get("ProductDescriptions") or filters.pop("product-description", None)
        zones = [params["AvailabilityZone"]] if "AvailabilityZone" in params else None
        zones = zones or filters.pop("availability-zone", None)
        if filters:
            raise invalid(f"The filter '{next(iter(filters))}' is invalid")
        if products and not {PRODUCT, f"{PRODUCT} (Amazon VPC)"} & set(products):
            return {"SpotPriceHistory": [], "NextToken": ""}
        rows: list[tuple[float, Pool, float]] = []
        for pool in self._world.market.of_region(region):
            if (types is None or pool.instance_type in types) and (zones is None or pool.zone in zones):
                for at_s, price in self._world.market.prices(pool, start_s, end_s):
                    rows.append((at_s, pool, price))
        rows.sort(key=lambda row: (-row[0], row[1].instance_type, row[1].zone))
        part, token = page(rows, params, _MOST_PRICES)
        return {
            "SpotPriceHistory": [
                {
                    "AvailabilityZone": pool.zone,
                    "InstanceType": pool.instance_type,
                    "ProductDescription": PRODUCT,
                    "SpotPrice": f"{price:.6f}",
                    "Timestamp": at_s,
                }
                for at_s, pool, price in part
            ],
            "NextToken": token or "",
        }

    def _requests(self, region: str, params: _Params) -> list[SpotRequest]:
        instances = self._world.instances
        known = {
            name: one
            for name, one in self._world.requests.items()
            if instances[one.instance_id].region == region
        }
        ids = params.get("SpotInstanceRequestIds", [])
        absent = [name for name in ids if name not in known]
        if absent:
            raise AwsError(
                "InvalidSpotInstanceRequestID.NotFound",
                f"The spot instance request ID '{absent[0]}' does not exist",
            )
        return [one for name, one in known.items() if not ids or name in ids]

    def _describe_spot_instance_requests(self, region: str, params: _Params) -> _Answer:
        found = describing.requests(self._requests(region, params), params.get("Filters", []))
        part, token = page(found, params, 1000)
        return {"SpotInstanceRequests": [describing.request(one) for one in part], "NextToken": token}

    def _cancel_spot_instance_requests(self, region: str, params: _Params) -> _Answer:
        answer = []
        found = self._requests(region, params)
        _dry(params)
        for one in found:
            if one.state != "closed":
                one.state, one.updated_s = "cancelled", self._world.now_s()
                running = self._world.instances[one.instance_id].occupies
                one.status = (
                    "request-canceled-and-instance-running" if running else "canceled-before-fulfillment"
                )
            answer.append({"SpotInstanceRequestId": one.request_id, "State": one.state})
        return {"CancelledSpotInstanceRequests": answer}

    def _request_spot_instances(self, region: str, params: _Params) -> _Answer:
        raise AwsError(
            "UnsupportedOperation", "The emulator launches spot instances by RunInstances and CreateFleet."
        )

    def _get_spot_placement_scores(self, region: str, params: _Params) -> _Answer:
        """1 without capacity for the target; else 10 times the share of the latest day with capacity."""
        wanted = params.get("InstanceTypes", [])
        regions = params.get("RegionNames") or [region]
        target = int(params["TargetCapacity"])
        now_s = self._world.clock.now()
        scores: dict[tuple[str, str], int] = {}
        for place in regions:
            ids = self._account.zone_ids(place)
            for pool in self._world.market.of_region(place):
                if wanted and pool.instance_type not in wanted:
                    continue
                key = (place, ids[pool.zone] if params.get("SingleAvailabilityZone") else "")
                free = pool.spot_capacity - self._world.used(pool, spot=True)
                score = 1
                if self._world.market.has_spot(pool, now_s) and free >= target:
                    score = max(1, round(10 * self._world.market.up_ratio(pool, now_s)))
                scores[key] = max(score, scores.get(key, 1))
        found = [
            {"Region": place, **({"AvailabilityZoneId": zone} if zone else {}), "Score": score}
            for (place, zone), score in sorted(scores.items(), key=lambda item: -item[1])
        ]
        part, token = page(found, params, 1000)
        return {"SpotPlacementScores": part, "NextToken": token}

    def _describe_instance_type_offerings(self, region: str, params: _Params) -> _Answer:
        kind = params.get("LocationType", "region")
        ids = self._account.zone_ids(region)
        places: dict[str, Callable[[Pool], str]] = {
            "region": lambda pool: region,
            "availability-zone": lambda pool: pool.zone,
            "availability-zone-id": lambda pool: ids[pool.zone],
        }
        if kind not in places:
            raise invalid(f"Invalid value '{kind}' for LocationType")
        filters = {one["Name"]: one.get("Values", []) for one in params.get("Filters", [])}
        pools = self._world.market.of_region(region)
        found = sorted({(pool.instance_type, places[kind](pool)) for pool in pools})
        chosen = [
            {"InstanceType": name, "LocationType": kind, "Location": place}
            for name, place in found
            if name in filters.get("instance-type", [name]) and place in filters.get("location", [place])
        ]
        part, token = page(chosen, params, 1000)
        return {"InstanceTypeOfferings": part, "NextToken": token}

    # Other services.

    def _get_products(self, region: str, params: _Params) -> _Answer:
        wanted = {one["Field"]: one["Value"] for one in params.get("Filters", [])}
        prices = {
            (pool.region, pool.instance_type): pool.config.on_demand_usd_hour
            for pool in self._world.market.pools.values()
        }
        found = []
        for (place, name), price in sorted(prices.items()):
            attributes = {
                "instanceType": name,
                "regionCode": place,
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
            }
            if all(attributes.get(field, value) == value for field, value in wanted.items()):
                found.append(json.dumps(_product(attributes, price)))
        part, token = page(found, params, 100)
        return {"FormatVersion": "aws_v1", "PriceList": part, **({"NextToken": token} if token else {})}

    def _quotas(self) -> list[_Answer]:
        config = self._world.config
        named = (
            (_SPOT_QUOTAS, config.spot_quota, "Spot"),
            (_ON_DEMAND_QUOTAS, config.on_demand_quota, "Running"),
        )
        return [
            {
                "ServiceCode": "ec2",
                "QuotaCode": code,
                "QuotaName": f"{kind} {bucket} instances (vCPUs)",
                "Value": float(getattr(quota, bucket)),
                "Unit": "None",
                "Adjustable": True,
                "GlobalQuota": False,
            }
            for codes, quota, kind in named
            for bucket, code in codes.items()
        ]

    def _get_service_quota(self, region: str, params: _Params) -> _Answer:
        for quota in self._quotas():
            if (quota["ServiceCode"], quota["QuotaCode"]) == (
                params.get("ServiceCode"),
                params.get("QuotaCode"),
            ):
                return {"Quota": quota}
        raise AwsError(
            "NoSuchResourceException", "The request failed because the specified quota does not exist."
        )

    def _list_service_quotas(self, region: str, params: _Params) -> _Answer:
        return {"Quotas": self._quotas() if params.get("ServiceCode") == "ec2" else []}


def _dry(params: _Params) -> None:
    if params.get("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


def _expect(one: Instance, *states: str) -> None:
    if one.state not in states:
        raise AwsError(
            "IncorrectInstanceState",
            f"The instance '{one.instance_id}' is not in a state from which this can be done ({one.state}).",
        )


def _epoch(given: datetime | None, otherwise_s: float) -> float:
    return otherwise_s if given is None else given.replace(tzinfo=UTC).timestamp()


def _product(attributes: dict[str, str], price: float) -> _Answer:
    sku = f"{attributes['regionCode']}.{attributes['instanceType']}".upper()
    dimension = {
        "unit": "Hrs",
        "pricePerUnit": {"USD": f"{price:.10f}"},
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"${price} per On Demand Linux {attributes['instanceType']} Instance Hour",
    }
    term = {
        "sku": sku,
        "offerTermCode": "JRTCKXETXF",
        "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension},
    }
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
    }
