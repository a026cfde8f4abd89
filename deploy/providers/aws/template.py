"""Launch templates: what all instances of a deployment have in common, made once for each region.

A template's name holds a hash of its content, so making it is idempotent, and a changed configuration makes
another one.
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

from deploy.providers.aws import names
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.errors import aws_errors, code_of
from deploy.providers.base import ProviderError, RefusedError

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")


def template_data(config: AwsConfig, region: str, deployment: str, root_device: str) -> dict[str, Any]:
    """The content. Nothing in it is secret, and no instance's own."""
    part = config.regions[region]
    tags = [
        {"Key": key, "Value": value}
        for key, value in {**config.tags, names.DEPLOYMENT: deployment, names.OWNER: config.owner}.items()
        if value
    ]
    data: dict[str, Any] = {
        "ImageId": part.image,
        "SecurityGroupIds": [part.security_group],
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": root_device,
                "Ebs": {
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                    "VolumeSize": config.disk_gib,
                    "VolumeType": "gp3",
                },
            }
        ],
        "TagSpecifications": [{"ResourceType": "volume", "Tags": tags}],
    }
    if config.instance_profile is not None:
        data["IamInstanceProfile"] = {"Name": config.instance_profile}
    if config.key_name is not None:
        data["KeyName"] = config.key_name
    return data


class Templates:
    """The templates of a configuration. Safe to use from several threads."""

    def __init__(self, clients: Clients, config: AwsConfig) -> None:
        self._clients = clients
        self._config = config
        self._made: dict[tuple[str, str], str] = {}
        self._roots: dict[str, str] = {}
        self._lock = threading.Lock()

    def ensure(self, region: str, deployment: str) -> str:
        """The name of the template, which is there when this returns.

        Raises:
            RefusedError: if the image is not there, or a permission is missing.
            ProviderError: if EC2 cannot be asked now.
        """
        key = (region, deployment)
        with self._lock:
            made = self._made.get(key)
        if made is None:
            # Not locked: a region that hangs must not hold up the others. Making it twice is no harm.
            made = self._make(region, deployment)
            with self._lock:
                self._made[key] = made
        return made

    def forget(self, region: str, deployment: str) -> None:
        """Somebody deleted it: make it again the next time."""
        with self._lock:
            self._made.pop((region, deployment), None)

    def _make(self, region: str, deployment: str) -> str:
        data = template_data(self._config, region, deployment, self._root_device(region))
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
        safe = "".join(letter if letter in _SAFE else "-" for letter in deployment)[:80]
        name = f"spotweave-{safe}-{digest}"
        tags = data["TagSpecifications"][0]["Tags"]
        try:
            with aws_errors(f"aws {region}: launch template {name}"):
                self._clients.get("ec2", region).create_launch_template(
                    LaunchTemplateName=name,
                    LaunchTemplateData=data,
                    ClientToken=hashlib.sha256(f"{region} {name}".encode()).hexdigest(),
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
                )
        except ProviderError as error:
            cause = error.__cause__
            if (
                not isinstance(cause, Exception)
                or code_of(cause) != "InvalidLaunchTemplateName.AlreadyExistsException"
            ):
                raise
        return name

    def _root_device(self, region: str) -> str:
        if region not in self._roots:
            image = self._config.regions[region].image
            with aws_errors(f"aws {region}: image {image}"):
                found = self._clients.get("ec2", region).describe_images(ImageIds=[image])["Images"]
            if not found:
                raise RefusedError(
                    f"aws {region}: image {image} is not there, or not shared with this account: set `image`"
                )
            self._roots[region] = found[0]["RootDeviceName"]
        return self._roots[region]
