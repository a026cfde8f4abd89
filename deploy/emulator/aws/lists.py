"""On-demand prices and the account's limits, as the Price List API and Service Quotas tell them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from deploy.emulator.aws.instances import page
from deploy.emulator.aws.wire import AwsError
from deploy.emulator.aws.world import Ec2World

_Params = dict[str, Any]
_Answer = dict[str, Any]

_SPOT_QUOTAS = {"standard": "L-34B43A08", "g": "L-3819A6DF", "p": "L-7212CCBC", "inf": "L-B5D1601B"}
_ON_DEMAND_QUOTAS = {"standard": "L-1216C47A", "g": "L-DB2E81BA", "p": "L-417A185B", "inf": "L-1945791B"}
"""https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"""


class ListActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World) -> None:
        self._world = world
        self.table: dict[tuple[str, str], Callable[[str, _Params], _Answer]] = {
            ("pricing", "GetProducts"): self._get_products,
            ("servicequotas", "GetServiceQuota"): self._get_service_quota,
        }

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
