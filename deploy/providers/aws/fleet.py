"""Renting one instance of whichever offer has room: create_fleet of type instant.

The loop decides about one offer, so it uses `run_instances`. A fleet is for a caller to whom several offers
of one region and market are equally good (the types that a job allows): EC2 then picks by price and by how
deep its pools are, which nobody else knows. The report says which offer it became, and so what it costs.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from deploy.model.instances import LaunchRequest
from deploy.providers.aws import describe, names
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.describe import Described
from deploy.providers.aws.errors import by_code
from deploy.providers.aws.launch import max_price, with_template
from deploy.providers.aws.names import Place
from deploy.providers.aws.template import Templates
from deploy.providers.aws.userdata import user_data
from deploy.providers.base import CapacityError, ProviderError, RefusedError


def run(
    clients: Clients,
    config: AwsConfig,
    templates: Templates,
    request: LaunchRequest,
    places: Sequence[Place],
    ca_pem: str | None,
) -> Described:
    """Rent one instance of any of these places, or learn of the one that this client token has rented.

    Raises:
        CapacityError: if none has room.
        RefusedError: if they are not of one region and market.
        QuotaError, ThrottledError, ProviderError: as in `Provider.launch`.
    """
    region, market = places[0].region, places[0].market
    if any((place.region, place.market) != (region, market) for place in places):
        raise RefusedError("aws: a fleet chooses between offers of one region and one market")
    data = user_data(request, config, ca_pem).encode()
    arguments: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": names.client_token(request),
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "spot" if market == "spot" else "on-demand",
        },
        "TagSpecifications": [{"ResourceType": "instance", "Tags": names.tags_of(request, config)}],
    }
    if market == "spot":
        arguments["SpotOptions"] = {
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
        }
    else:
        arguments["OnDemandOptions"] = {"AllocationStrategy": "lowest-price"}
    doing = (
        f"aws {region}: fleet of {', '.join(sorted({place.instance_type for place in places}))} ({market})"
    )

    def call(template: str) -> dict[str, Any]:
        specification = {
            "LaunchTemplateName": template,
            "Version": "1",
            "LaunchTemplateSpecificationUserData": base64.b64encode(data).decode("ascii"),
        }
        answer: dict[str, Any] = clients.get("ec2", region).create_fleet(
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": specification,
                    "Overrides": [_override(place, request, config) for place in places],
                }
            ],
            **arguments,
        )
        return answer

    answer = with_template(templates, region, request.deployment, call, doing)
    ids = [name for entry in answer.get("Instances", ()) for name in entry["InstanceIds"]]
    if not ids:
        raise _failure(answer.get("Errors", ()), doing)
    found = describe.of_ids(clients, config, region, ids[:1])
    if not found:
        # EC2 does not show it yet; the same token tells later.
        raise ProviderError(f"{doing}: {ids[0]} was rented and is not visible yet")
    return found[0]


def _override(place: Place, request: LaunchRequest, config: AwsConfig) -> dict[str, Any]:
    override = {
        "InstanceType": place.instance_type,
        "SubnetId": config.regions[place.region].subnets[place.zone],
    }
    price = max_price(request, config.instance_types[place.instance_type])
    return {**override, "MaxPrice": price} if price and place.market == "spot" else override


def _failure(errors: Sequence[dict[str, Any]], doing: str) -> ProviderError:
    """What a fleet without an instance is: no capacity, if that is what any of its pools said."""
    failures = [
        by_code(entry.get("ErrorCode", ""), entry.get("ErrorMessage", ""), doing, "ec2:CreateFleet")
        for entry in errors
    ]
    for failure in failures:
        if isinstance(failure, CapacityError):
            return failure
    return failures[0] if failures else CapacityError(f"{doing}: no pool had room")
