"""The spot market: prices, requests, scores, and where which type is offered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from deploy.emulator.aws import instances as instances_api
from deploy.emulator.aws.account import Account
from deploy.emulator.aws.instances import page
from deploy.emulator.aws.wire import AwsError, invalid
from deploy.emulator.aws.world import Ec2World, SpotRequest
from deploy.emulator.market import Pool

_Params = dict[str, Any]
_Answer = dict[str, Any]
_PRODUCT = "Linux/UNIX"
_MOST_PRICES = 1000


class SpotActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self.table: dict[tuple[str, str], Callable[[str, _Params], _Answer]] = {
            ("ec2", "DescribeSpotPriceHistory"): self._describe_spot_price_history,
            ("ec2", "DescribeSpotInstanceRequests"): self._describe_spot_instance_requests,
            ("ec2", "GetSpotPlacementScores"): self._get_spot_placement_scores,
            ("ec2", "DescribeInstanceTypeOfferings"): self._describe_instance_type_offerings,
        }

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
        if products and not {_PRODUCT, f"{_PRODUCT} (Amazon VPC)"} & set(products):
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
                    "ProductDescription": _PRODUCT,
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
        found = instances_api.requests(self._requests(region, params), params.get("Filters", []))
        part, token = page(found, params, 1000)
        return {"SpotInstanceRequests": [instances_api.request(one) for one in part], "NextToken": token}

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


def _epoch(given: datetime | None, otherwise_s: float) -> float:
    return otherwise_s if given is None else given.replace(tzinfo=UTC).timestamp()
