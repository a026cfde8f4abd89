"""What moto keeps of the account: images, networks, launch templates, instance profiles."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from moto.core.base_backend import BackendDict
from moto.core.exceptions import ServiceException
from moto.core.model_instances import reset_model_data
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends

from deploy.emulator.aws.config import AwsEmulatorConfig, ImageConfig
from deploy.emulator.aws.wire import REQUEST_ID, AwsError, invalid

_T = TypeVar("_T")


@dataclass(frozen=True)
class Image:
    """A machine image, as far as a launch needs it."""

    image_id: str
    architecture: str
    root_device: str
    root_gib: int


@dataclass(frozen=True)
class Network:
    """Where an instance lies."""

    zone: str
    subnet_id: str
    vpc_id: str


class Account:
    """The one account. moto keeps one state per process, so there is one of these per process at a time."""

    def __init__(self, config: AwsEmulatorConfig) -> None:
        BackendDict.reset()
        reset_model_data()
        self._images = {image.image_id: image for image in config.images}
        for region in config.regions:
            for image in config.images:
                self._register(region, image)
            self._name(region)
        roles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
        roles.create_role("AWSServiceRoleForEC2Spot", "{}", "/", None, "", [], "3600")
        for bucket in config.buckets:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, config.regions[0])

    def ec2(self, region: str) -> Any:
        """The backend of moto."""
        return ec2_backends[DEFAULT_ACCOUNT_ID][region]

    def image(self, region: str, image_id: str) -> Image:
        """Raises AwsError if there is none."""
        given = self._images.get(image_id)
        if given is not None:
            return Image(image_id, given.architecture, given.root_device, given.root_gib)
        known = self.ec2(region).amis.get(image_id)
        if known is None:
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
        return Image(image_id, known.architecture or "x86_64", known.root_device_name or "/dev/sda1", 8)

    def network(self, region: str, subnet_id: str | None, zone: str) -> Network:
        """The subnet that was asked for, or the default one of a zone. Raises AwsError."""
        backend = self.ec2(region)
        if subnet_id is not None:
            subnet = _asked(lambda: backend.get_subnet(subnet_id))
        else:
            subnet = backend.get_default_subnets().get(zone)
            if subnet is None:
                raise invalid(f"Invalid availability zone: [{zone}]")
        return Network(subnet.availability_zone, subnet.id, subnet.vpc_id)

    def groups(
        self, region: str, vpc_id: str, ids: list[str], names: list[str]
    ) -> tuple[tuple[str, str], ...]:
        """(id, name) of security groups; the default one if none is asked for. Raises AwsError."""
        backend = self.ec2(region)
        found = []
        for asked in [*ids, *names]:
            group = backend.get_security_group_by_name_or_id(asked, vpc_id)
            if group is None:
                raise AwsError("InvalidGroup.NotFound", f"The security group '{asked}' does not exist")
            if group.vpc_id != vpc_id:
                raise invalid(f"Security group {group.id} and the subnet belong to different networks.")
            found.append((group.id, group.name))
        if not found:
            group = backend.get_default_security_group(vpc_id)
            if group is not None:
                found.append((group.id, group.name))
        return tuple(found)

    def template(self, region: str, asked: dict[str, Any]) -> dict[str, Any]:
        """A launch template's data. Raises AwsError."""
        backend = self.ec2(region)
        key = {"LaunchTemplateId": "template_ids", "LaunchTemplateName": "template_names"}
        name = next((name for name in key if name in asked), None)
        if name is None:
            raise AwsError("MissingParameter", "Specify a launch template by its id or its name.")
        template = _asked(lambda: backend.describe_launch_templates(**{key[name]: [asked[name]]}))[0]
        version = asked.get("Version", template.default_version_number)
        found = _asked(lambda: template.get_version(version))
        return dict(found.data)

    def profile_arn(self, asked: dict[str, str]) -> str | None:
        """Of the instance profile that was asked for. Raises AwsError."""
        if not asked:
            return None
        backend = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for profile in backend.instance_profiles.values():
            if profile.arn == asked.get("Arn") or profile.name == asked.get("Name"):
                return str(profile.arn)
        field, value = next(iter(asked.items()))
        raise invalid(
            f"Value ({value}) for parameter iamInstanceProfile.{field.lower()} is invalid. "
            "Invalid IAM Instance Profile name"
        )

    def key_pair(self, region: str, name: str | None) -> None:
        """Raises AwsError if there is none of this name."""
        if name is not None and name not in self.ec2(region).key_pairs:
            raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")

    def zone_ids(self, region: str) -> dict[str, str]:
        """`use1-az1` by `us-east-1a`."""
        return {zone.name: zone.zone_id for zone in self.ec2(region).describe_availability_zones()}

    def _name(self, region: str) -> None:
        """Give the default network ids that a configuration can name: moto draws them again each time.

        The default group lets its own members in, as in a real account.
        """
        backend = self.ec2(region)
        for zone, subnet in backend.get_default_subnets().items():
            del backend.subnets[zone][subnet.id]
            subnet.id = subnet_of(zone)
            backend.subnets[zone][subnet.id] = subnet
        group = backend.get_default_security_group()
        del backend.groups[group.vpc_id][group.id]
        group.id = group.group_id = group_of(region)
        backend.groups[group.vpc_id][group.id] = group
        backend.authorize_security_group_ingress(
            group.id, "-1", "-1", "-1", [], source_groups=[{"GroupId": group.id}], vpc_id=group.vpc_id
        )

    def _register(self, region: str, image: ImageConfig) -> None:
        backend = self.ec2(region)
        backend.amis[image.image_id] = Ami(
            backend,
            image.image_id,
            name=image.name,
            public=True,
            virtualization_type="hvm",
            architecture=image.architecture,
            root_device_type="ebs",
            root_device_name=image.root_device,
            region_name=f"{region}a",
        )


def subnet_of(zone: str) -> str:
    """Id of the default subnet of a zone: always the same."""
    return f"subnet-{hashlib.sha256(zone.encode()).hexdigest()[:17]}"


def group_of(region: str) -> str:
    """Id of the default security group of a region: always the same."""
    return f"sg-{hashlib.sha256(region.encode()).hexdigest()[:17]}"


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except ServiceException as error:
        raise AwsError(error.code, error.message) from error


def _asked(ask: Callable[[], _T]) -> _T:
    """The refusals of moto are those of AWS."""
    with _refusing():
        return ask()


# What the caller may do, as IAM's policy simulator tells it.


def allowed(denied: Sequence[str], permission: str) -> bool:
    """Whether no pattern of the configuration denies it."""
    return not any(fnmatchcase(permission, pattern) for pattern in denied)


class IdentityActions:
    """The actions by service and name. They answer `{"xml": text}`: IAM speaks XML of its own."""

    def __init__(self, denied: Sequence[str]) -> None:
        self._denied = denied
        self.table: dict[tuple[str, str], Callable[[str, dict[str, Any]], dict[str, Any]]] = {
            ("iam", "SimulatePrincipalPolicy"): self._simulate
        }

    def _simulate(self, region: str, params: dict[str, Any]) -> dict[str, Any]:
        asked = [value for key, value in params.items() if key.startswith("ActionNames.member.")]
        results = "".join(
            f"<member><EvalActionName>{name}</EvalActionName><EvalResourceName>*</EvalResourceName>"
            f"<EvalDecision>{'allowed' if allowed(self._denied, name) else 'implicitDeny'}</EvalDecision>"
            "<MatchedStatements/><MissingContextValues/></member>"
            for name in asked
        )
        return {
            "xml": '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
            f"<SimulatePrincipalPolicyResult><EvaluationResults>{results}</EvaluationResults>"
            "<IsTruncated>false</IsTruncated></SimulatePrincipalPolicyResult>"
            f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata>"
            "</SimulatePrincipalPolicyResponse>"
        }
