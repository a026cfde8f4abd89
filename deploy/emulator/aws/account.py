"""What moto keeps of the account: images, networks, launch templates, instance profiles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

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

    def image(self, image_id: str) -> ImageConfig:
        """Raises AwsError if there is none."""
        if image_id not in self._images:
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
        return self._images[image_id]

    def zone_of(self, region: str, subnet_id: str) -> str:
        """Zone of a subnet. Raises AwsError if there is none."""
        with _refusing():
            return str(self.ec2(region).get_subnet(subnet_id).availability_zone)

    def require(self, region: str, given: Mapping[str, Any]) -> None:
        """Refuse security groups, a key pair or an instance profile that are not there. Raises AwsError."""
        backend = self.ec2(region)
        for group in given.get("SecurityGroupIds", []):
            if backend.get_security_group_from_id(group) is None:
                raise AwsError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
        name = given.get("KeyName")
        if name is not None and name not in backend.key_pairs:
            raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")
        profiles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"].instance_profiles.values()
        for field, value in given.get("IamInstanceProfile", {}).items():
            if not any(value in (profile.arn, profile.name) for profile in profiles):
                raise invalid(
                    f"Value ({value}) for parameter iamInstanceProfile.{field.lower()} is invalid. "
                    "Invalid IAM Instance Profile name"
                )

    def template(self, region: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Data of a launch template, by its name. Raises AwsError."""
        with _refusing():
            template = self.ec2(region).describe_launch_templates(
                template_names=[asked["LaunchTemplateName"]]
            )[0]
            return dict(template.get_version(asked.get("Version", template.default_version_number)).data)

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
    """The refusals of moto are those of AWS."""
    try:
        yield
    except ServiceException as error:
        raise AwsError(error.code, error.message) from error


def allowed(denied: Sequence[str], permission: str) -> bool:
    """Whether no pattern of the configuration denies the permission."""
    return not any(fnmatchcase(permission, pattern) for pattern in denied)


def simulate(denied: Sequence[str], params: Mapping[str, str]) -> dict[str, str]:
    """SimulatePrincipalPolicy: the answer is `{"xml": text}`, because IAM speaks XML of its own."""
    asked = [value for key, value in params.items() if key.startswith("ActionNames.member.")]
    results = "".join(
        f"<member><EvalActionName>{name}</EvalActionName><EvalResourceName>*</EvalResourceName>"
        f"<EvalDecision>{'allowed' if allowed(denied, name) else 'implicitDeny'}</EvalDecision>"
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
