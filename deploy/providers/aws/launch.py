"""Renting one instance of one offer: run_instances, idempotent by its client token."""

from __future__ import annotations

from typing import Any

from deploy.model.instances import LaunchRequest
from deploy.providers.aws import names
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.config import AwsConfig, InstanceType
from deploy.providers.aws.describe import Described, described
from deploy.providers.aws.errors import aws_errors, code_of
from deploy.providers.aws.template import Templates
from deploy.providers.base import ProviderError
from deploy.providers.config import Place
from deploy.providers.userdata import user_data

USER_DATA_BYTES = 16384
"""The most that EC2 takes."""


def max_price(request: LaunchRequest, kind: InstanceType) -> str | None:
    """The lower limit of the request and the configuration, as EC2 takes it; None for none."""
    limits = [limit for limit in (request.max_price_usd_hour, kind.max_price_usd_hour) if limit is not None]
    return f"{min(limits):.6f}" if limits else None


def run(
    clients: Clients,
    config: AwsConfig,
    templates: Templates,
    request: LaunchRequest,
    place: Place,
    ca_pem: str | None,
) -> Described:
    """Rent one instance, or learn of the one that this client token has rented already.

    Raises:
        CapacityError, QuotaError, ThrottledError, RefusedError, ProviderError: as in `Provider.launch`.
    """
    kind = config.instance_types[place.instance_type]
    arguments: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": names.client_token(request),
        "InstanceType": place.instance_type,
        "SubnetId": config.regions[place.region].subnets[place.zone],
        "UserData": user_data(request, config.node, ca_pem, "ec2", USER_DATA_BYTES),
        "TagSpecifications": [{"ResourceType": "instance", "Tags": names.tags_of(request, config)}],
    }
    if place.market == "spot":
        arguments["InstanceMarketOptions"] = market_options(max_price(request, kind))
    elif kind.hibernate:
        arguments["HibernationOptions"] = {"Configured": True}
    doing = f"aws {place.zone}: launch of {place.instance_type} ({place.market})"

    for last in (False, True):
        template = templates.ensure(place.region, request.deployment)
        try:
            with aws_errors(doing):
                answer = clients.get("ec2", place.region).run_instances(
                    LaunchTemplate={"LaunchTemplateName": template, "Version": "1"}, **arguments
                )
            return described(answer["Instances"][0], place.region, config)
        except ProviderError as error:
            cause = error.__cause__
            gone = isinstance(cause, Exception) and code_of(cause).startswith("InvalidLaunchTemplate")
            if last or not gone:
                raise
            # Somebody deleted it: it is made again.
            templates.forget(place.region, request.deployment)
    raise AssertionError("unreachable")


def market_options(price: str | None) -> dict[str, Any]:
    """One-time spot: what is interrupted is terminated, and no request stays behind that rents again."""
    spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    return {"MarketType": "spot", "SpotOptions": {**spot, **({"MaxPrice": price} if price else {})}}
