"""What a launch asks for, checked as EC2 checks it before it looks for room."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from deploy.emulator.aws.account import Account, Image
from deploy.emulator.aws.errors import AwsError, invalid
from deploy.emulator.records import Behaviour

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
