"""The market: prices, spot requests, scores, where which type is offered, and the account's limits."""

from __future__ import annotations

from datetime import UTC, datetime

from spotweave.deploy.emulator.aws import instances as instances_api
from spotweave.deploy.emulator.aws.instances import page
from spotweave.deploy.emulator.aws.wire import Account, Action, AwsError, Json, invalid
from spotweave.deploy.emulator.aws.world import Ec2World
from spotweave.deploy.emulator.world import Pool

_PRODUCT = "Linux/UNIX"
_SPOT_QUOTAS = {"standard": "L-34B43A08", "g": "L-3819A6DF", "p": "L-7212CCBC", "inf": "L-B5D1601B"}
_ON_DEMAND_QUOTAS = {"standard": "L-1216C47A", "g": "L-DB2E81BA", "p": "L-417A185B", "inf": "L-1945791B"}
"""https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"""


class MarketActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self.table: dict[tuple[str, str], Action] = {
            ("ec2", "DescribeSpotPriceHistory"): self._describe_spot_price_history,
            ("ec2", "DescribeSpotInstanceRequests"): self._describe_spot_instance_requests,
            ("ec2", "GetSpotPlacementScores"): self._get_spot_placement_scores,
            ("ec2", "DescribeInstanceTypeOfferings"): self._describe_instance_type_offerings,
            ("servicequotas", "GetServiceQuota"): self._get_service_quota,
        }

    def _describe_spot_price_history(self, region: str, params: Json) -> Json:
        now_s = self._world.clock.now()
        start_s = _epoch(params.get("StartTime"), now_s)
        end_s = min(now_s, _epoch(params.get("EndTime"), now_s))
        start_s = min(start_s, end_s)
        filters = {one["Name"]: one.get("Values", []) for one in params.get("Filters", [])}
        types, products = params.get("InstanceTypes"), params.get("ProductDescriptions")
        zones = filters.pop("availability-zone", None)
        if filters:
            raise invalid(f"The filter '{next(iter(filters))}' is invalid")
        if products and not {_PRODUCT, f"{_PRODUCT} (Amazon VPC)"} & set(products):
            return {"SpotPriceHistory": [], "NextToken": ""}
        rows: list[tuple[float, Pool, float]] = []
        for pool in self._world.market.of_region(region):
            if (types is None or pool.instance_type in types) and (zones is None or pool.zone in zones):
                for at_s, price in self._world.market.prices(pool, start_s, end_s):
                    rows.append((at_s, pool, price))
        rows.sort(key=lambda row: (-row[0], row[1].instance_type, row[1].zone))
        part, token = page(rows, params)
        return {
            "SpotPriceHistory": [
                {
                    "AvailabilityZone": pool.zone,
                    "InstanceType": pool.instance_type,
                    "ProductDescription": _PRODUCT,
                    "SpotPrice": f"{price:.6f}",
                    "Timestamp": at_s,
                }
                for at_s, pool, price in part
            ],
            "NextToken": token or "",
        }

    def _describe_spot_instance_requests(self, region: str, params: Json) -> Json:
        instances = self._world.instances
        here = [one for one in self._world.requests.values() if instances[one.instance_id].region == region]
        found = instances_api.matching(here, params.get("Filters", []), instances_api.REQUEST)
        part, token = page(found, params)
        return {"SpotInstanceRequests": [instances_api.request(one) for one in part], "NextToken": token}

    def _get_spot_placement_scores(self, region: str, params: Json) -> Json:
        """Score zones: 1 without capacity for the target, else 10 times the share of a day with capacity."""
        wanted, target = params.get("InstanceTypes", []), int(params["TargetCapacity"])
        market, now_s = self._world.market, self._world.clock.now()
        scores: dict[tuple[str, str], int] = {}
        for place in params.get("RegionNames") or [region]:
            ids = self._account.zone_ids(place)
            for pool in market.of_region(place):
                if wanted and pool.instance_type not in wanted:
                    continue
                free = pool.spot_capacity - self._world.used(pool, spot=True)
                score = 1
                if market.has_spot(pool, now_s) and free >= target:
                    score = max(1, round(10 * market.up_ratio(pool, now_s)))
                key = (place, ids[pool.zone])
                scores[key] = max(score, scores.get(key, 1))
        found = [
            {"Region": place, "AvailabilityZoneId": zone, "Score": score}
            for (place, zone), score in sorted(scores.items(), key=lambda item: -item[1])
        ]
        part, token = page(found, params)
        return {"SpotPlacementScores": part, "NextToken": token}

    def _describe_instance_type_offerings(self, region: str, params: Json) -> Json:
        kind = params.get("LocationType")
        if kind != "availability-zone":
            raise invalid(f"Invalid value '{kind}' for LocationType")
        filters = {one["Name"]: one.get("Values", []) for one in params.get("Filters", [])}
        pools = self._world.market.of_region(region)
        found = [
            {"InstanceType": name, "LocationType": kind, "Location": place}
            for name, place in sorted({(pool.instance_type, pool.zone) for pool in pools})
            if name in filters.get("instance-type", [name])
        ]
        part, token = page(found, params)
        return {"InstanceTypeOfferings": part, "NextToken": token}

    def _get_service_quota(self, region: str, params: Json) -> Json:
        config, asked = self._world.config, params.get("QuotaCode")
        for codes, quota in ((_SPOT_QUOTAS, config.spot_quota), (_ON_DEMAND_QUOTAS, config.on_demand_quota)):
            for bucket, code in codes.items():
                if params.get("ServiceCode") == "ec2" and code == asked:
                    return {"Quota": {"QuotaCode": code, "Value": float(getattr(quota, bucket))}}
        raise AwsError(
            "NoSuchResourceException", "The request failed because the specified quota does not exist."
        )


def _epoch(given: datetime | None, otherwise_s: float) -> float:
    return otherwise_s if given is None else given.replace(tzinfo=UTC).timestamp()
